// Options of the programs that the tests come with: whole numbers, each with a default and the least that makes sense. What
// cannot be meant ends the program with 2 before it has begun anything.
import { parseArgs } from 'node:util'

export function wholeOptions<Name extends string>(
  known: Readonly<Record<Name, { readonly default: number; readonly least: number }>>,
): Record<Name, number> {
  const names = Object.keys(known) as Name[]
  const read = (name: Name, text: string): [Name, number] => {
    const { least } = known[name]
    if (/^\d{1,15}$/.test(text) && Number(text) >= least) return [name, Number(text)]
    throw new Error(`--${name} ${text}: use a whole number from ${least} on.`)
  }
  try {
    const options = Object.fromEntries(
      names.map((name) => [name, { type: 'string' as const, default: String(known[name].default) }]),
    )
    const { values } = parseArgs({ options })
    return Object.fromEntries(names.map((name) => read(name, String(values[name])))) as Record<Name, number>
  } catch (error) {
    console.error((error as Error).message)
    process.exit(2)
  }
}
