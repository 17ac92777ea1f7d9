/**
 * Makes text of strangers (keys, labels, reasons, host names) safe for one line of a log or a terminal. Nothing in the
 * result moves the cursor, changes colours, ends the line or turns the direction of writing.
 */
export function escaped(text: string): string {
  return text.replace(UNPRINTABLE, (character) => {
    const code = character.codePointAt(0) ?? 0
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`
  })
}

/**
 * Controls, line ends, unpaired surrogates, blanks other than the space, and what is invisible or turns the direction (Unicode
 * TR36 §2.9). An emoji, a keycap and an ideograph keep the variation selector that says how they are drawn.
 */
export const UNPRINTABLE: RegExp =
  /(?! |(?<=\p{Extended_Pictographic})[\ufe0e\ufe0f]|(?<=[\d#*])\ufe0f\u20e3|(?<=\p{Unified_Ideograph})[\u{e0100}-\u{e01ef}])[\p{Cc}\p{Cf}\p{Cs}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/gu

/** Its beginning, and how long it is, where it is longer than so many UTF-16 units. */
export function shortened(text: string, most: number): string {
  if (text.length <= most) return text
  // Not between the two halves of a character.
  const beginning = text.slice(0, most).replace(/[\ud800-\udbff]$/, '')
  return `${beginning}… (${text.length} characters)`
}

/** Whether each `%` of a part of a URL begins the code of a character. */
export function isDecodable(text: string): boolean {
  try {
    // A bundler leaves out a call of it whose result is not used.
    return typeof decodeURIComponent(text) === 'string'
  } catch {
    return false
  }
}

/** Whether a key comes after another one in the order of the bytes, in which etcd and the tables of PostgreSQL list them. */
export function comesAfter(key: string, other: string): boolean {
  return Buffer.compare(Buffer.from(key), Buffer.from(other)) > 0
}
