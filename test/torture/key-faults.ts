// What somebody else, or an operator, does to the keys of one session, and to our channels. None of it costs a turn.
import type { Dice } from './dice.ts'
import type { Fault } from './fault.ts'
import type { Stage } from './stage.ts'

const STRANGERS = ['stranger', 'Abcdef012345.0123456789abcdef', 'Abcdef012345.0123456789abcdef/idle']
const JUNK = ['\u0000\u00ff not a reference', '9007199254740993:x', '999999:m-nobody', '1:m-old']

/** Whether a lock's value or a list's element is from here. */
export const isForeign = (value: string): boolean => STRANGERS.includes(value) || JUNK.includes(value)

export const keyFaults: readonly Fault<string>[] = [
  fault('lock-deleted', 3, async (stage, session) => {
    return (await stage.options.servers.ask('DEL', stage.key(session, 'lock'))) !== 0
  }),
  fault('lock-stolen', 2, (stage, session, dice) => {
    const { lockTtlMs = 30_000 } = stage.options.tunables
    const lasting = dice.chance(0.5) ? ['PX', dice.between(100, lockTtlMs)] : []
    return stage.options.servers.ask('SET', stage.key(session, 'lock'), dice.pick(STRANGERS), ...lasting)
  }),
  fault('queue-gone', 2, async (stage, session) => {
    const lists = [stage.key(session, 'queue'), stage.key(session, 'processing')]
    return (await stage.options.servers.ask('DEL', ...lists)) !== 0
  }),
  fault('foreign-keys', 2, (stage, session, dice) => {
    const key = stage.key(session, dice.pick(['queue', 'processing']))
    const [write, ...args] = dice.pick([
      ['LPUSH', key, ...JUNK],
      ['SET', key, 'not a list'],
      ['HSET', stage.key(session, 'lock'), 'not', 'a string'],
    ])
    return stage.options.servers.ask(write!, ...args)
  }),
  {
    // Until its members say that they are there, everybody is woken instead of one of them.
    ...fault('fleet-gone', 1, async (stage) => {
      return (await stage.options.servers.ask('DEL', `${stage.prefix}:processes`)) !== 0
    }),
    gentle: true,
  },
  {
    ...fault('foreign-notices', 2, async (stage, session, dice) => {
      const ids = stage.posts.map(({ member }) => `${stage.prefix}:process:${member.processId}`)
      const channel = dice.pick([`${stage.prefix}:wake`, ...ids])
      const junk = [
        '',
        '{',
        '{"stop":',
        `stop ${session} 999999`,
        `retake ${session}`,
        `{"wake":["${session}"]}`,
        session,
      ]
      for (const text of junk) await stage.options.servers.ask('PUBLISH', channel, text)
    }),
    gentle: true,
  },
]

function fault(
  name: string,
  weight: number,
  act: (stage: Stage, session: string, dice: Dice) => Promise<unknown>,
): Fault<string> {
  return {
    name,
    weight,
    lasts: [0, 0],
    costs: 'none',
    begin: async (stage, dice, session) => ((await act(stage, session, dice)) === false ? false : undefined),
  }
}
