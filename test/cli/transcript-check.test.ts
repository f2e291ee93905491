import { describe, expect, it } from 'vitest'
import { TranscriptCheck } from '../../src/cli/transcript-check.ts'
import type { Entry } from '../../src/index.ts'

const SENT = [1, 2, 3].map((seq) => ({ line: seq + 10, session: 'chat', seq, text: `text ${seq}` }))

type Line = Pick<Entry, 'seq' | 'type' | 'payload'> & Partial<Entry>

/** One message that ran once: four entries. */
const served = (seq: number): Line[] => [
  { seq, type: 'turn_started', payload: {} },
  { seq, type: 'message', payload: { payload: `text ${seq}` } },
  { seq, type: 'reply', payload: 'heard' },
  { seq, type: 'turn_ended', payload: { outcome: 'completed' } },
]

const HEALTHY = [1, 2, 3].flatMap(served)

/** Numbers the lines and judges them. */
function problems(lines: readonly Line[], head = lines.length, sent = SENT): string[] {
  const check = new TranscriptCheck('chat', sent)
  const rest = { epoch: 1, attempt: 1, callId: null, stepKey: null, createdAt: '2026-01-01T00:00:00.000Z' }
  lines.forEach((line, index) => check.next({ entry: index + 1, ...rest, ...line }))
  check.end(head)
  check.checkReplies()
  return check.problems.map(
    ({ kind, line, detail }) => `${kind}${line === undefined ? '' : ` ${line}`}: ${detail}`,
  )
}

describe('the check of a transcript', () => {
  it('I1 · finds nothing where every message was served once and in order', () => {
    expect(problems(HEALTHY)).toEqual([])
  })

  it('I4 · accepts an attempt that was lost, its half-said reply, and a later owner', () => {
    const lost: Line[] = [
      { seq: 1, type: 'turn_started', payload: {} },
      { seq: 1, type: 'message', payload: { payload: 'text 1' } },
      { seq: 1, type: 'reply', payload: 'half' },
      { seq: 1, type: 'turn_ended', payload: { outcome: 'lost' } },
    ]
    const again = served(1)
      .filter(({ type }) => type !== 'message')
      .map((line) => ({ ...line, attempt: 2, epoch: 2 }))
    const later = [...served(2), ...served(3)].map((line) => ({ ...line, epoch: 2 }))
    expect(problems([...lost, ...again, ...later])).toEqual([])
  })

  it('I1 · finds what is lost: a message, its end, its reply, the end of the transcript', () => {
    expect(problems(HEALTHY.slice(0, 8))).toEqual([
      'lost 13: message 3 is not in the transcript',
      'lost 13: message 3 has no final turn_ended',
    ])
    expect(problems(HEALTHY.toSpliced(6, 1))).toEqual(['lost 12: message 2 has no reply'])
    expect(problems(HEALTHY, 13)).toEqual(['gap: the transcript ends at 12, not at 13'])
  })

  it('I4 · finds what is there twice: a reply, an end, a message, a number', () => {
    expect(problems(HEALTHY.toSpliced(6, 0, HEALTHY[6]!))).toEqual(['doubled 12: message 2 has 2 replies'])
    expect(problems(HEALTHY.toSpliced(8, 0, HEALTHY[7]!))).toEqual([
      'doubled 12: message 2 was ended 2 times',
    ])
    expect(problems([...HEALTHY, ...served(3)])).toContain(
      'doubled 13: message 3 is in the transcript 2 times',
    )
    const twice = [...SENT, { line: 14, session: 'chat', seq: 3, text: 'text 3' }]
    expect(problems(HEALTHY, 12, twice)).toEqual(['doubled: lines 13 and 14 are both message 3'])
  })

  it('I2 · finds what is out of order: turns, and numbers against the file', () => {
    expect(problems([...served(2), ...served(1), ...served(3)])).toEqual([
      'outOfOrder 11: message 1 started after the end of 2',
      'outOfOrder 11: message 1 comes after 2',
      'outOfOrder 11: message 1 ended after 2',
    ])
    const overlapping = [
      ...served(1),
      served(2)[0]!,
      served(3)[0]!,
      ...served(2).slice(1),
      ...served(3).slice(1),
    ]
    expect(problems(overlapping)).toEqual(['outOfOrder 13: message 3 started after the end of 1'])
    const [one, two, three] = SENT
    expect(problems(HEALTHY, 12, [two!, one!, three!])).toEqual(['outOfOrder 11: got number 1 after 2'])
  })

  it('I3 · finds holes and entries of a replaced owner', () => {
    expect(problems(HEALTHY.with(5, { ...HEALTHY[5]!, entry: 7 }))).toContain('gap: entry 7 follows 5')
    const replaced = HEALTHY.with(0, { ...HEALTHY[0]!, epoch: 2 })
    expect(problems(replaced)).toContain('epoch: entry 2 has epoch 1 after 2')
  })

  it('finds what was altered, and what did not complete', () => {
    const altered = HEALTHY.with(1, { seq: 1, type: 'message', payload: { payload: 'other' } })
    expect(problems(altered)).toEqual(['altered 11: message 1 does not say what was sent'])
    const stopped = HEALTHY.with(11, { seq: 3, type: 'turn_ended', payload: { outcome: 'stopped' } })
    expect(problems(stopped)).toEqual(['notCompleted 13: message 3 ended as stopped'])
  })
})
