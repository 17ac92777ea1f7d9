import type { Option, Subcommand } from '../arguments.ts'
import { GLOBAL_OPTIONS, namesOf, quoted, valuesOf } from './values.ts'

/** Works from bash 3.2 on, which macOS has, and without the package bash-completion. */
export function bashScript(commands: readonly Subcommand[]): string {
  return `# bash completion for holdfast. In ~/.bashrc: eval "$(holdfast completion bash)"
_holdfast() {
  # Not COMP_WORDS: bash breaks words at the colons of a URL there.
  local line=\${COMP_LINE:0:$COMP_POINT} at last current previous name
  local -a words
  read -r -a words <<< "$line"
  [[ $line == *[[:blank:]] ]] && words+=('')
  last=$((\${#words[@]} - 1))
  current=\${words[last]}
  previous=\${words[last - 1]}
  COMPREPLY=()
  if ((last <= 1)); then
    _holdfast_offer ${quoted([...commands.map(({ name }) => name), ...GLOBAL_OPTIONS].join(' '))}
    return
  fi
  name=\${words[1]}
  for ((at = 2; at < last; at++)); do
    [[ \${words[at]} == -- ]] && { _holdfast_behind "$name" $((last - at)); return; }
  done
  if [[ $current == --*=* ]]; then
    previous=\${current%%=*}
    current=\${current#*=}
  fi
  case "$name $previous" in
${valueCases(commands).join('\n')}
  esac
  if [[ $current == -* ]]; then
    case $name in
${commands.map(optionCase).join('\n')}
    esac
    return
  fi
  ((last == 2)) && case $name in
${commands.flatMap(wordCases).join('\n')}
  esac
  _holdfast_no_files
}

# Offers words that go on from what was typed. Readline replaces only what is behind the last colon.
_holdfast_offer() {
  local word break=
  [[ $current == *:* && $COMP_WORDBREAKS == *:* ]] && break=\${current%"\${current##*:}"}
  while IFS= read -r word; do
    [[ -n $word ]] && COMPREPLY+=("\${word#"$break"}")
  done < <(compgen -W "$1" -- "$current")
  ((\${#COMPREPLY[@]} > 0)) || _holdfast_no_files
}

# Words that the user goes on with, such as redis://
_holdfast_begin() {
  type compopt > /dev/null 2>&1 && compopt -o nospace 2> /dev/null
  _holdfast_offer "$1"
}

# A command to run, or one of its arguments: \`-o default\` offers files for these.
_holdfast_behind() {
  case $1 in
${commands.flatMap(({ name, takesCommand }) => (takesCommand === true ? [`    ${name}) (($2 == 1)) && COMPREPLY=($(compgen -c -- "$current")) ;;`] : [])).join('\n')}
    *) _holdfast_no_files ;;
  esac
}

# Files are offered where nothing else is known, and a key is no file. Bash 3.2 has no compopt, and offers files.
_holdfast_no_files() {
  type compopt > /dev/null 2>&1 && compopt +o default 2> /dev/null
}

complete -o default -o nosort -F _holdfast holdfast 2> /dev/null || complete -o default -F _holdfast holdfast`
}

/** One case for each set of values, with all options that take it. */
function valueCases(commands: readonly Subcommand[]): readonly string[] {
  const patterns = new Map<string, string[]>()
  for (const { name: command, options } of commands) {
    for (const [name, option] of Object.entries(options)) {
      const offer = offerOf(option)
      if (offer === undefined) continue
      const known = patterns.get(offer) ?? []
      patterns.set(offer, [...known, ...namesOf(name, option).map((each) => quoted(`${command} ${each}`))])
    }
  }
  return [...patterns].map(([offer, options]) => `    ${options.join(' | ')}) ${offer} ;;`)
}

/** `undefined` for an option without a value. */
function offerOf(option: Option): string | undefined {
  const values = valuesOf(option)
  switch (values.tag) {
    case 'none':
      return undefined
    case 'unknown':
      return '_holdfast_no_files; return'
    case 'words':
      return `_holdfast_offer ${quoted(values.words.join(' '))}; return`
    case 'beginnings':
      return `_holdfast_begin ${quoted(values.words.join(' '))}; return`
    case 'file':
      return 'return'
    default:
      return values satisfies never
  }
}

function optionCase({ name, options }: Subcommand): string {
  const words = Object.keys(options).map((each) => `--${each}`)
  return `      ${name}) _holdfast_offer ${quoted(words.join(' '))} ;;`
}

function wordCases({ name, firstWords }: Subcommand): readonly string[] {
  return firstWords === undefined
    ? []
    : [`    ${name}) _holdfast_offer ${quoted(firstWords.join(' '))}; return ;;`]
}
