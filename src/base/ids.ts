/**
 * Names: who may be called what. Session ids and keys are checked once, at the border, so that everything behind it
 * can put them into keys, rows and log lines without a thought.
 */
import { customAlphabet } from 'nanoid'
import { InvalidInputError } from './errors.ts'

/** No `_` or `%` (wildcards of LIKE), no `.` (it separates a token's two halves), no `/` (it marks an idle lock). */
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const random12 = customAlphabet(ALPHABET, 12)
const random16 = customAlphabet(ALPHABET, 16)
const random20 = customAlphabet(ALPHABET, 20)

/** A worker process for as long as it lives; never reused, whatever its host name and pid are. */
export const newProcessId = (): string => random12()

/** An ownership: the process and a random part that no other acquisition ever repeats, not even after a restore. */
export const newOwnerToken = (processId: string): string => `${processId}.${random16()}`

export const processOf = (ownerToken: string): string => ownerToken.slice(0, ownerToken.indexOf('.'))

export const newKeyId = (): string => random12()

/** About 190 bits, which nobody guesses. */
export const newSecret = (): string => random16() + random16()

export const newMessageId = (): string => `m-${random20()}`

const SESSION_ID = /^[A-Za-z0-9._:@-]{1,128}$/

export function checkSessionId(id: unknown): string {
  if (typeof id === 'string' && SESSION_ID.test(id) && id !== '.' && id !== '..') return id
  throw new InvalidInputError(
    'INVALID_SESSION_ID',
    `Session id ${show(id)} is not allowed: use 1 to 128 of A-Z a-z 0-9 . _ : @ - (and neither "." nor "..").`,
  )
}

/** Whether a string from outside (a channel, a list) is a session id; for listeners, which ignore what is not. */
export const isSessionId = (id: string): boolean => SESSION_ID.test(id) && id !== '.' && id !== '..'

const TENANT = /^[A-Za-z0-9._@-]{0,127}$/

/** Part of a session id before its first colon; '' for ids without one. */
export function checkTenant(tenant: unknown): string {
  if (typeof tenant === 'string' && TENANT.test(tenant)) return tenant
  throw new InvalidInputError(
    'INVALID_ARGUMENT',
    `Tenant ${show(tenant)} is not allowed: use the part of a session id before its colon, of A-Z a-z 0-9 . _ @ -`,
  )
}

/** Who reads a session, in its own words: as a session id. */
export function checkReader(reader: unknown): string {
  if (typeof reader === 'string' && isSessionId(reader)) return reader
  throw new InvalidInputError(
    'INVALID_ARGUMENT',
    `Reader ${show(reader)} is not allowed: use 1 to 128 of A-Z a-z 0-9 . _ : @ -`,
  )
}

/** Printable ASCII, no space at either end: compares the same in JavaScript, Redis and every SQL collation. */
const KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,198}[\x21-\x7e])?$/

/** Idempotency keys, step keys, call ids: 1 to 200 printable ASCII characters. */
export function checkKey(what: string, key: unknown): string {
  if (typeof key === 'string' && KEY.test(key)) return key
  throw new InvalidInputError(
    'INVALID_KEY',
    `${what} ${show(key)} is not allowed: use 1 to 200 printable ASCII characters without spaces at the ends.`,
  )
}

const KIND = /^[A-Za-z0-9._:-]{1,64}$/

/** Message kinds and entry types: 1 to 64 of letters, digits and . _ : - */
export function checkKind(what: string, kind: unknown): string {
  if (typeof kind === 'string' && KIND.test(kind)) return kind
  throw new InvalidInputError(
    'INVALID_MESSAGE',
    `${what} ${show(kind)} is not allowed: use 1 to 64 of A-Z a-z 0-9 . _ : -`,
  )
}

/** A value as it may stand in an error message: short, and never an object's content. */
export function show(value: unknown): string {
  const text = textOf(value)
  return text.length > 60 ? `${text.slice(0, 57)}...` : text
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value === 'function') return 'a function'
  // What is left are primitives, which print as themselves.
  return String(value as number | boolean | bigint | symbol | null | undefined)
}
