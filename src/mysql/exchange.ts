/**
 * A transaction in two round trips: ask everything, decide, write everything and commit. What is decided here is
 * decided in memory, so nothing has to be asked in between; and a round trip costs more than a statement. A server
 * stops at the first statement that fails, so a COMMIT that follows the writes is reached only if all of them succeeded.
 */
import { CompiledQuery, type Kysely } from 'kysely'
import type { Database } from './schema.ts'

/** A statement to ask with, and what its rows mean. Without a statement the answer is that of no rows. */
export interface Question<T> {
  readonly query?: CompiledQuery | undefined
  readonly answer: (rows: readonly unknown[]) => T
}

/** What is to be written, in this order, and what the caller is told once it is committed. */
export interface Decision<T> {
  readonly writes: readonly CompiledQuery[]
  readonly result: T
}

type Answers<Q extends readonly Question<unknown>[]> = {
  [K in keyof Q]: Q[K] extends Question<infer T> ? T : never
}

export type Decide<Q extends readonly Question<unknown>[], T> = (...answers: Answers<Q>) => Decision<T>

/** On a connection of our own, which takes several statements at once. The caller rolls back what this rejects with. */
export async function inTwoTrips<const Q extends readonly Question<unknown>[], T>(
  connection: Kysely<Database>,
  questions: Q,
  decide: Decide<Q, T>,
): Promise<T> {
  const asked = questions.filter(({ query }) => query !== undefined)
  const first = await connection.executeQuery(join([BEGIN, ...asked.flatMap(({ query }) => query ?? [])]))
  // One result for each statement; of a statement that returns no rows it is not a list.
  const results = new Map(asked.map((question, index) => [question, rowsOf(first.rows[index + 1])]))
  const decision = decide(...answers(questions, (question) => results.get(question) ?? []))
  await connection.executeQuery(join([...decision.writes, COMMIT]))
  return decision.result
}

/** One statement after the other, for connections that are set up by somebody else. */
export async function inManyTrips<const Q extends readonly Question<unknown>[], T>(
  trx: Kysely<Database>,
  questions: Q,
  decide: Decide<Q, T>,
): Promise<T> {
  const results = new Map<Question<unknown>, readonly unknown[]>()
  for (const question of questions) {
    if (question.query) results.set(question, (await trx.executeQuery(question.query)).rows)
  }
  const decision = decide(...answers(questions, (question) => results.get(question) ?? []))
  for (const write of decision.writes) await trx.executeQuery(write)
  return decision.result
}

const BEGIN = CompiledQuery.raw('begin')
const COMMIT = CompiledQuery.raw('commit')
export const ROLLBACK = CompiledQuery.raw('rollback')

function join(queries: readonly CompiledQuery[]): CompiledQuery {
  return CompiledQuery.raw(
    queries.map(({ sql }) => sql).join('; '),
    queries.flatMap(({ parameters }) => [...parameters]),
  )
}

const rowsOf = (result: unknown): readonly unknown[] => (Array.isArray(result) ? result : [])

function answers<Q extends readonly Question<unknown>[]>(
  questions: Q,
  rowsFor: (question: Question<unknown>) => readonly unknown[],
): Answers<Q> {
  return questions.map((question) => question.answer(rowsFor(question))) as unknown as Answers<Q>
}
