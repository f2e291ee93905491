// Any sequence of rules, by any number of owners, obedient or not, keeps what the session row promises. The model keeps
// what the ledger would have in its tables; each step locks the row, applies one rule and writes the draft.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Draft, type NumberedEntry } from '../../src/protocol/draft.ts'
import { admit, stop, withdraw, type WhenBusy } from '../../src/protocol/intake.ts'
import { acquire, evict, type Verdict } from '../../src/protocol/ownership.ts'
import { type Message, runningTurn, type SessionRow, type TurnName } from '../../src/protocol/session-row.ts'
import { append, type Ending, finish, start } from '../../src/protocol/turn-rules.ts'
import { limits, message, row, submission } from './rows.ts'

const TOKENS = ['P1.aaaa', 'P1.bbbb', 'P2.cccc'] as const
const QUEUE_MAX = 5

class Store {
  row: SessionRow = row()
  readonly messages = new Map<number, Message>()
  readonly entries: NumberedEntry[] = []
  /** Every turn that ever started: a late write may come from any of them. */
  readonly turns: TurnName[] = []
  readonly finals = new Map<number, number>()
  #made = 0

  apply<R>(rule: (draft: Draft) => R): R {
    const before = this.row
    const seq = before.doneSeq + 1
    const read = { message: { seq, message: this.messages.get(seq) }, openCalls: this.openCalls() }
    const draft = new Draft(before, read)
    const result = rule(draft)
    if (!draft.touched) {
      expect([draft.row, draft.entries, draft.statuses]).toEqual([before, [], []])
      return result
    }
    for (const { seq: marked, status } of draft.statuses) {
      const old = this.messages.get(marked)
      if (old?.status === null) this.messages.set(marked, { ...old, status })
    }
    for (let done = before.doneSeq + 1; done <= draft.row.doneSeq; done++) {
      this.finals.set(done, (this.finals.get(done) ?? 0) + 1)
    }
    this.entries.push(...draft.entries)
    this.row = draft.row
    this.#check(before)
    return result
  }

  send(whenBusy: WhenBusy, exists: boolean): void {
    const numbers = { ...this.row }
    const result = admit(numbers, submission(`m-${(this.#made += 1)}`, { whenBusy }), undefined, QUEUE_MAX)
    const before = this.row
    this.row = numbers
    if (!(result instanceof Error) && exists) this.messages.set(result.seq, message(result.seq))
    this.#check(before)
  }

  openCalls(): string[] {
    const open = new Set<string>()
    for (const { seq, attempt, type, callId = '' } of this.entries) {
      if (seq !== this.row.runningSeq || attempt !== this.row.starts) continue
      if (type === 'tool_call') open.add(callId)
      if (type === 'tool_result') open.delete(callId)
    }
    return [...open]
  }

  #check(before: SessionRow): void {
    const { inboxSeq, doneSeq, stopSeq, runningSeq, owner, epoch, entrySeq } = this.row
    expect(doneSeq).toBeLessThanOrEqual(inboxSeq)
    expect(stopSeq).toBeLessThanOrEqual(inboxSeq)
    if (runningSeq !== null) {
      expect(runningSeq).toBe(doneSeq + 1)
      expect(runningSeq).toBeLessThanOrEqual(inboxSeq)
      expect(owner).not.toBeNull()
      expect(this.row.starts).toBeGreaterThan(0)
    }
    for (const key of ['inboxSeq', 'doneSeq', 'stopSeq', 'epoch', 'entrySeq'] as const) {
      expect(this.row[key]).toBeGreaterThanOrEqual(before[key])
    }
    expect(doneSeq - before.doneSeq).toBeLessThanOrEqual(1)
    if (owner !== before.owner && owner !== null) expect(epoch).toBe(before.epoch + 1)
    expect(this.entries.length).toBe(entrySeq)
  }
}

const token = fc.constantFrom(...TOKENS)
const ending = fc.constantFrom<Ending['as']>('completed', 'stopped', 'handed_over', 'retrying', 'failed')
const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('send' as const),
      whenBusy: fc.constantFrom<WhenBusy>('enqueue', 'interrupt', 'reject'),
      exists: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('stop' as const),
      through: fc.option(fc.nat(8), { nil: undefined }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('withdraw' as const), seq: fc.nat(8) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('acquire' as const), token }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('evict' as const),
      turn: fc.nat(5),
      verdict: fc.constantFrom<Verdict>('dead', 'hung', 'silent', 'orphan'),
    }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('start' as const), token, able: fc.boolean() }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('append' as const),
      turn: fc.nat(5),
      call: fc.nat(2),
      late: fc.nat(2),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('finish' as const),
      turn: fc.nat(5),
      as: ending,
      detach: fc.boolean(),
    }),
  },
)
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

/** 0 is the newest turn: obedient; larger numbers are callbacks of turns long past. */
const turnAt = (store: Store, back: number): TurnName =>
  store.turns.at(-1 - back) ?? { owner: 'P9.x', seq: 1, starts: 1 }

function take(store: Store, now: Step): void {
  switch (now.do) {
    case 'send':
      return store.send(now.whenBusy, now.exists)
    case 'stop':
      return void store.apply((draft) => stop(draft, now.through))
    case 'withdraw':
      return void store.apply((draft) => withdraw(draft, now.seq))
    case 'acquire': {
      const running = runningTurn(store.row)
      const { outcome } = store.apply((draft) => acquire(draft, now.token))
      if (running && running.owner !== now.token) expect(outcome).toBe('refused')
      return
    }
    case 'evict':
      return void store.apply((draft) => evict(draft, turnAt(store, now.turn), now.verdict))
    case 'start': {
      const { stopSeq, owner } = store.row
      const started = store.apply((draft) =>
        start(draft, now.token, limits({ runs: () => now.able, maxStarts: 4 })),
      )
      if (started.outcome !== 'started') return
      expect([owner, started.turn.seq > stopSeq]).toEqual([now.token, true])
      return void store.turns.push(started.turn)
    }
    case 'append': {
      const turn = turnAt(store, now.turn)
      const type = store.openCalls().includes(`${now.call}`) ? 'tool_result' : 'tool_call'
      const again = store.entries.some((entry) => entry.callId === `${now.call}` && entry.type === type)
      const entry = again ? { type: 'text', payload: '1' } : { type, payload: '1', callId: `${now.call}` }
      const isTurn = runningTurn(store.row)
      const { outcome } = store.apply((draft) => append(draft, turn, [entry], store.row.entrySeq - now.late))
      return expect(outcome).toBe(isTurn && same(isTurn, turn) ? 'appended' : 'lost')
    }
    case 'finish': {
      const turn = turnAt(store, now.turn)
      const entries = [{ type: 'reply', payload: '"x"' }]
      const full: Ending = { as: now.as, entries, error: '{}', delayMs: 0 } as Ending
      const isTurn = runningTurn(store.row)
      const successor = now.detach && now.as !== 'handed_over' ? `P1.new${store.entries.length}` : undefined
      const { outcome } = store.apply((draft) => finish(draft, turn, full, store.openCalls(), successor))
      return expect(outcome).toBe(isTurn && same(isTurn, turn) ? 'finished' : 'lost')
    }
  }
}

const same = (a: TurnName, b: TurnName) => a.owner === b.owner && a.seq === b.seq && a.starts === b.starts

test('I1 I2 I3 · after any sequence of rules the numbers, the transcript and the final states are right', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 120 }), (steps) => {
      const store = new Store()
      for (const one of steps) take(store, one)
      const { entries, row: last } = store
      expect(entries.map(({ entrySeq }) => entrySeq)).toEqual(entries.map((_, index) => index + 1))
      expect([...store.finals]).toEqual(Array.from({ length: last.doneSeq }, (_, index) => [index + 1, 1]))
      expect(entries.map(({ epoch }) => epoch)).toEqual(
        entries.map(({ epoch }) => epoch).sort((a, b) => a - b),
      )
      expect(entries.map(({ seq }) => seq)).toEqual(entries.map(({ seq }) => seq).sort((a, b) => a - b))
      const open = new Set<string>()
      for (const { seq, attempt, type, callId } of entries) {
        const call = `${seq}/${attempt}/${callId}`
        if (type === 'tool_call') open.add(call)
        if (type === 'tool_result') expect(open.delete(call)).toBe(true)
        if (type === 'turn_ended') expect([...open]).toEqual([])
      }
    }),
    { numRuns: 150 },
  )
})
