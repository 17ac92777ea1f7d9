import type { Option, Subcommand } from '../arguments.ts'
import { GLOBAL_OPTIONS, quoted, valuesOf } from './values.ts'

export function fishScript(commands: readonly Subcommand[]): string {
  const behind = commands.flatMap(({ name, takesCommand }) => (takesCommand === true ? [name] : []))
  return `# fish completion for holdfast: holdfast completion fish > ~/.config/fish/completions/holdfast.fish

# The words before the cursor are those of one command, and none of them is \`--\`.
function __holdfast_in
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]; and not contains -- -- $words
end

# The next word is the first one behind the command.
function __holdfast_first
    __holdfast_in $argv[1]; and test (count (commandline -opc)) -eq 2
end

# What can follow the \`--\` of a command that runs another one.
function __holdfast_behind
    set -l words (commandline -opc)
    contains -- "$words[2]" ${behind.join(' ')}; or return
    set -l at (contains -i -- -- $words); or return
    set -l command (string escape -- $words[(math $at + 1)..-1]) (commandline -ct)
    complete -C (string join ' ' -- $command)
end

complete -c holdfast -e
complete -c holdfast -f
${commands.map(commandLine).join('\n')}
${GLOBAL_OPTIONS.map((name) => `complete -c holdfast -n 'test (count (commandline -opc)) -eq 1' -l ${name.slice(2)}`).join('\n')}
complete -c holdfast -n 'contains -- -- (commandline -opc)' -a '(__holdfast_behind)'
${commands.flatMap(linesOf).join('\n')}`
}

function commandLine({ name, summary }: Subcommand): string {
  return `complete -c holdfast -n 'test (count (commandline -opc)) -eq 1' -a ${name} -d ${escapedWord(summary)}`
}

function linesOf({ name, options, firstWords }: Subcommand): readonly string[] {
  const begin = `complete -c holdfast -n '__holdfast_in ${name}'`
  const words =
    firstWords === undefined
      ? []
      : [`complete -c holdfast -n '__holdfast_first ${name}' -a ${quoted(firstWords.join(' '))}`]
  return [
    ...words,
    ...Object.entries(options).map(([each, option]) =>
      [
        begin,
        ...(option.short === undefined ? [] : [`-s ${option.short}`]),
        `-l ${each}`,
        ...valueFlags(option),
        `-d ${escapedWord(option.help)}`,
      ].join(' '),
    ),
  ]
}

/** `-x`: a value that is no file; `-r -F`: a file. */
function valueFlags(option: Option): readonly string[] {
  const values = valuesOf(option)
  switch (values.tag) {
    case 'none':
      return []
    case 'unknown':
      return ['-x']
    case 'words':
    case 'beginnings':
      return ['-x', `-a ${quoted(values.words.join(' '))}`]
    case 'file':
      return ['-r', '-F']
    default:
      return values satisfies never
  }
}

/** Between the single quotes of fish a backslash escapes. */
function escapedWord(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&')}'`
}
