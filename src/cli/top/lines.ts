import { cut, width } from '../text.ts'

/** Cuts the text at its end, as its beginning says the most. */
export function start(text: string, room: number): string {
  if (width(text) <= room) return text
  let shown = ''
  let left = room - 1
  for (const character of text) {
    left -= width(character)
    if (left < 0) break
    shown += character
  }
  return `${shown}…`
}

export function fill(line: string, columns: number): string {
  const text = cut(line, columns)
  return text + ' '.repeat(Math.max(0, columns - width(text)))
}

/** As many whole hints as fit. */
export function wholeHints(text: string, room: number): string {
  if (text.length <= room) return text
  const hints = text.slice(0, room + 1).split('  ')
  return hints.slice(0, -1).join('  ').slice(0, room)
}

/** A question and its answer so far, which is cut at its beginning, as the user types at the end. */
export function typingLine(
  question: string,
  { typed, room }: { readonly typed: string; readonly room: number },
): string {
  const least = Math.min(width(question), Math.floor(room / 2))
  const answer = end(typed, room - least - 2)
  const left = room - width(answer) - 1
  return cut(`${cut(question, left)}${answer}_`, room)
}

/** As much of the end of a text as fits. */
function end(text: string, room: number): string {
  const characters = [...text]
  let left = room
  let from = characters.length
  while (from > 0) {
    left -= width(characters[from - 1] ?? '')
    if (left < 0) break
    from -= 1
  }
  return characters.slice(from).join('')
}

/** The first line to show, so that the marked line is visible and no space below the last line is wasted. */
export function topFor({
  at,
  top,
  count,
  pageSize,
}: {
  readonly at: number
  readonly top: number
  readonly count: number
  readonly pageSize: number
}): number {
  const wanted = at === -1 ? top : Math.min(at, Math.max(top, at - pageSize + 1))
  return Math.max(0, Math.min(wanted, count - pageSize))
}
