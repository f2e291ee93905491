// A deliberate fault in the code, and the tests that must notice it.

export interface Bug {
  /** What is wrong with the code that has it. */
  readonly name: string
  /** Below `src/`. */
  readonly file: string
  /** Each text occurs exactly once in the file. */
  readonly edits: readonly (readonly [text: string, instead: string])[]
  /** Test files below `test/`, in the order in which they are tried; the first that fails has caught it. */
  readonly noticedBy: readonly string[]
}

export class Stale extends Error {}

/** The file's text with the fault in it. Throws `Stale` when the code has moved on and the fault no longer applies. */
export function plant(bug: Bug, text: string): string {
  return bug.edits.reduce((before, [from, to]) => {
    const count = before.split(from).length - 1
    if (count !== 1) throw new Stale(`"${from}" occurs ${count} times in src/${bug.file}; adapt the bug.`)
    return before.replace(from, () => to)
  }, text)
}
