// Each rule is seen to find what it is there to find in a made-up history, and nothing when all is well or excused.
import { describe, expect, test } from 'vitest'
import type { Line } from '../support/history.ts'
import { call, entry, fault, good, problemsOf, rig, SECOND, world } from './made-up.ts'
import * as rules from './call-rules.ts'

const codes = problemsOf(rules.codes)
const deadlines = problemsOf(rules.deadlines)
const origins = problemsOf(rules.origins)
const withdrawals = problemsOf(rules.withdrawals)

describe('I1 I6 · origins', () => {
  test('two messages of one call', () => {
    const twice = { ...good, scripts: [...good.scripts, ['a', 'echo'] as const] }
    expect(origins(world(twice))).toEqual(['chat: I6: a is 2 messages: 1, 2'])
  })

  test('a message whose only call was refused, and not one whose call is unanswered', () => {
    const refused = call('a', 10, 'failed', { fields: { mark: 'a', code: 'MYSQL_UNAVAILABLE' } })
    expect(origins(world({ ...good, history: refused }))[0]).toContain('every call for a was refused')
    for (const outcome of ['unknown', 'nothing'])
      expect(origins(world({ ...good, history: call('a', 10, outcome, { fields: { mark: 'a' } }) }))).toEqual(
        [],
      )
  })

  test('two calls that were both the first', () => {
    const second = call('b', 11, 'ok', { seq: 1, fields: { mark: 'a', id: 'm-1', duplicate: false } })
    expect(origins(world({ ...good, history: [...good.history, ...second] }))[0]).toContain(
      'they were the first',
    )
  })

  test('a call that was told the number of another message', () => {
    const other = { ...good, scripts: [['b', 'echo'] as const] }
    expect(origins(world(other)).join()).toContain('which is not the one it sent')
  })
})

describe('I1 I10 · calls', () => {
  const failed = (code: string, name = 'enqueue') => call('z', 10, 'failed', { name, fields: { code } })
  const coded = (history: Line[]) => codes(world({ ...good, history }))

  test('a code that the call may not have', () => {
    for (const code of ['FOREIGN', 'IDEMPOTENCY_CONFLICT', 'INVALID_ARGUMENT', 'SESSION_BUSY'])
      expect(coded(failed(code))[0]).toContain(`call z (enqueue) failed with ${code}`)
    expect(coded(failed('NOT_WITHDRAWABLE', 'withdraw'))).toEqual([])
    expect(coded(call('z', 10, 'failed', { fields: { whenBusy: 'reject', code: 'SESSION_BUSY' } }))).toEqual(
      [],
    )
  })

  test('a database that is said to be away although nothing is broken', () => {
    const away = failed('MYSQL_UNAVAILABLE')
    expect(coded(away)[0]).toContain('with nothing broken')
    expect(coded([...away, ...fault('lock-deleted', 10, 10, { session: 'chat' })])).toHaveLength(1)
    expect(coded([...away, ...fault('mysql-kill', 9, 10)])).toEqual([])
  })

  test('a connection that broke although no process or line was broken', () => {
    const lost = call('z', 10, 'unknown', { fields: { code: 'CONNECTION_LOST' } })
    const crash: Line = {
      ...rig,
      what: 'ended',
      name: 'SIGABRT',
      ns: 10.2 * SECOND,
      fields: { process: 'P' },
    }
    expect(coded(lost)[0]).toContain('with nothing broken')
    expect(coded([...lost, crash])).toEqual([])
    expect(coded([...lost, ...fault('worker-drain', 9, 10, { process: 'P' })])).toEqual([])
    expect(coded([...failed('MYSQL_UNAVAILABLE'), crash])).toHaveLength(1)
  })

  test('a call that took too long, or never ended', () => {
    const [invoked, result] = call('p0g0.1', 10, 'ok') as [Line, Line]
    const slow = { ...result, ns: 310 * SECOND }
    const timed = (...history: Line[]) => deadlines(world({ ...good, history }))
    expect(timed(invoked, slow)[0]).toContain('call p0g0.1 (enqueue) ended after 300000 ms')
    expect(timed(invoked)).toHaveLength(1)
    expect(timed(invoked, slow, ...fault('producer-freeze', 11, 309, { process: 'p0' }))).toEqual([])
    expect(timed(invoked, slow, ...fault('producer-freeze', 11, 309, { process: 'p1' }))).toHaveLength(1)
  })

  test('a message that was withdrawn and ran', () => {
    const withdrawn = call('w', 10.05, 'ok', { name: 'withdraw', seq: 1, fields: { seq: 1 } })
    const history = [...good.history, ...withdrawn]
    expect(withdrawals(world({ ...good, history }))[0]).toContain('ended as completed although w')
    const entries = [entry(1, 0, 10.2, 'turn_ended', { outcome: 'withdrawn' })]
    expect(withdrawals(world({ ...good, history, entries }))).toEqual([])
  })
})
