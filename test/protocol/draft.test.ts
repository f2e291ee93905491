// draft.ts: what a rule changes is written, what it only looked at is not.
import { expect, test } from 'vitest'
import { draft, row } from './rows.ts'

test('a draft that no rule changed writes nothing', () => {
  const untouched = draft({ inboxSeq: 3 })
  expect([untouched.touched, untouched.entries, untouched.statuses]).toEqual([false, [], []])
})

test('a draft changes its own copy of the row', () => {
  const before = row({ inboxSeq: 1 })
  const changed = draft(before)
  changed.set({ stopSeq: 1 })
  expect([before.stopSeq, changed.row.stopSeq, changed.touched]).toEqual([0, 1, true])
})

test('I7 · entries get dense numbers after those of the row, with its epoch and attempt', () => {
  const changed = draft({ entrySeq: 7, epoch: 4, starts: 2 })
  changed.add(1, { type: 'a', payload: '1' })
  changed.add(1, { type: 'b', payload: '2', callId: 'c' })
  expect(changed.entries).toEqual([
    { type: 'a', payload: '1', entrySeq: 8, seq: 1, epoch: 4, attempt: 2 },
    { type: 'b', payload: '2', callId: 'c', entrySeq: 9, seq: 1, epoch: 4, attempt: 2 },
  ])
  expect([changed.row.entrySeq, changed.touched]).toEqual([9, true])
})

test('a final state that is to be written touches the draft', () => {
  const changed = draft()
  changed.mark(3, 'failed', '{}')
  expect([changed.touched, changed.statuses]).toEqual([true, [{ seq: 3, status: 'failed', error: '{}' }]])
})
