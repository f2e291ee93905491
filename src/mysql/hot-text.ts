/**
 * Statements as text, for the few that run for every message: building them with Kysely, node by node and value by
 * value, costs the process more than everything else it does for a message.
 */
import { CompiledQuery } from 'kysely'
import type { Database } from './schema.ts'

/** What stands for a column in a row: `?` takes the next value; an expression may take one or none. */
export type Columns = Readonly<Record<string, string>>

export const NOW = 'utc_timestamp(3)'

/** As many placeholders as there are values. */
export const marks = (values: readonly unknown[]): string => Array<string>(values.length).fill('?').join(', ')

/** An INSERT of many rows. */
export class BulkInsert {
  readonly #head: string
  readonly #row: string
  readonly #tail: string

  /** `onDuplicate`: assignments by column; `values(column)` is what the row would have inserted. */
  constructor(table: keyof Database, columns: Columns, onDuplicate?: Columns) {
    this.#head = `insert into ${table} (${Object.keys(columns).join(', ')}) values `
    this.#row = `(${Object.values(columns).join(', ')})`
    const assignments = Object.entries(onDuplicate ?? {}).map(([column, value]) => `${column} = ${value}`)
    this.#tail = assignments.length === 0 ? '' : ` on duplicate key update ${assignments.join(', ')}`
  }

  /** `rows` hold the values in the order of the columns that take one. No rows, no statement. */
  of(rows: readonly (readonly unknown[])[]): CompiledQuery[] {
    if (rows.length === 0) return []
    const text = this.#head + Array<string>(rows.length).fill(this.#row).join(', ') + this.#tail
    return [CompiledQuery.raw(text, rows.flat())]
  }
}
