import type { Option, Subcommand } from '../arguments.ts'
import { GLOBAL_OPTIONS, namesOf, quoted, valuesOf } from './values.ts'

export function zshScript(commands: readonly Subcommand[]): string {
  const described = commands.map(({ name, summary }) => quoted(`${name}:${summary}`))
  const behind = commands.flatMap(({ name, takesCommand }) => (takesCommand === true ? [name] : []))
  return `#compdef holdfast
# zsh completion for holdfast. In ~/.zshrc, below compinit: eval "$(holdfast completion zsh)"
_holdfast() {
  # Not \`commands\`, which is a table of zsh itself.
  local -a described=(
${described.map((each) => `    ${each}`).join('\n')}
  )
  if ((CURRENT == 2)); then
    if [[ $PREFIX == -* ]]; then compadd -- ${GLOBAL_OPTIONS.join(' ')}; else _describe command described; fi
    return
  fi
  local name=$words[2] behind=\${words[(i)--]}
  # A command to run, or one of its arguments.
  if ((behind < CURRENT)); then
    case $name in
      ${behind.join(' | ')}) shift $behind words; ((CURRENT -= behind)); _normal ;;
    esac
    return
  fi
  shift words
  ((CURRENT -= 1))
  case $name in
${commands.map(commandCase).join('\n')}
  esac
}

# Autoloaded from a folder of fpath, it is called at once.
if [[ $funcstack[1] == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi`
}

function commandCase({ name, options, firstWords }: Subcommand): string {
  const specs = Object.entries(options).map(([each, option]) => specOf(each, option))
  const words = firstWords === undefined ? [] : [quoted(`1:word:(${firstWords.join(' ')})`)]
  return `    ${name}) _arguments -s ${[...specs, ...words].join(' \\\n      ')} ;;`
}

/** `'(--wait -w)'{--wait=,-w+}'[help]:DURATION: '` */
function specOf(name: string, option: Option): string {
  const names = namesOf(name, option)
  const spelt = names.map((each) =>
    option.value === undefined ? each : each + (each.startsWith('--') ? '=' : '+'),
  )
  const help = `[${escapedIn(option.help)}]${actionOf(option)}`
  if (spelt.length === 1) return quoted(`${spelt[0]}${help}`)
  return `${quoted(`(${names.join(' ')})`)}{${spelt.join(',')}}${quoted(help)}`
}

function actionOf(option: Option): string {
  const values = valuesOf(option)
  switch (values.tag) {
    case 'none':
      return ''
    case 'unknown':
      return `:${values.name}: `
    case 'words':
      return `:${values.name}:(${values.words.join(' ')})`
    case 'beginnings':
      return `:${values.name}:compadd -S "" -- ${values.words.map(escapedIn).join(' ')}`
    case 'file':
      return `:${values.name}:_files`
    default:
      return values satisfies never
  }
}

/** What `_arguments` would take for the end of a part. */
function escapedIn(text: string): string {
  return text.replace(/[\\[\]:]/g, '\\$&')
}
