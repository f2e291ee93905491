import type { Bug } from './bug.ts'

/** One text of a file of `src/session` replaced by another. */
export const sessionBug = (
  name: string,
  file: string,
  from: string,
  to: string,
  ...noticedBy: string[]
): Bug => ({
  name,
  file: `session/${file}`,
  edits: [[from, to]],
  noticedBy: noticedBy.map((test) => `${test}.test.ts`),
})
