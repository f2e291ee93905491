/** Guesses the name that somebody meant who misspelt it. */

/** The known name that takes the fewest edits, unless it takes so many that it is a guess. */
export function closest(name: string, known: readonly string[]): string | undefined {
  const ranked = known.map((candidate) => ({ candidate, edits: editsBetween(name.slice(0, 40), candidate) }))
  const best = ranked.toSorted((left, right) => left.edits - right.edits)[0]
  return best && best.edits <= Math.max(2, best.candidate.length / 3) ? best.candidate : undefined
}

/** Levenshtein distance, ignoring case. */
function editsBetween(left: string, right: string): number {
  const [from, to] = [left.toLowerCase(), right.toLowerCase()]
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let line = 0; line < from.length; line++) {
    const next = [line + 1]
    for (let column = 0; column < to.length; column++) {
      const replaced = row[column]! + (from[line] === to[column] ? 0 : 1)
      next.push(Math.min(replaced, row[column + 1]! + 1, next[column]! + 1))
    }
    row = next
  }
  return row.at(-1)!
}
