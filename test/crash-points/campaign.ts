// A campaign: each life once without a kill, which tells how many replies it has, and then once for each of them and
// both sides of it, on a few lanes side by side.
import { customAlphabet } from 'nanoid'
import { Ground } from './ground.ts'
import { LIVES, type Life } from './lives.ts'
import { type Place, playPoint, type Verdict } from './point.ts'
import { type Kind, KINDS } from './tally.ts'
import { Victims } from './victims.ts'

export interface Point extends Place {
  readonly life: string
}

export interface Outcome extends Verdict {
  readonly name: string
  readonly life: string
  /** Undefined: the life was played without a kill. */
  readonly point: Point | undefined
}

export interface CampaignOptions {
  readonly redisUrl: string
  readonly mysqlUrl: string
  /** Where folders are made. */
  readonly parent: string
  readonly lanes: number
  /** Lives to play; default: all. */
  readonly lives?: readonly string[]
  /** Replies to kill at; default: all. */
  readonly kinds?: readonly Kind[]
  /** Only these points; nothing is counted first. */
  readonly only?: readonly Point[]
  /** Every so-many-th point. */
  readonly every?: number
  /** No further point begins after so many milliseconds. */
  readonly forMs?: number
  readonly onLife?: (life: Life, replies: Verdict['replies']) => void
  readonly onPoints?: (points: readonly Point[]) => void
  readonly onOutcome?: (outcome: Outcome) => void
}

/** How often a point is played until its reply comes. */
const TRIES = 3

/** The life was over before that reply, so nobody was killed. */
export const isMissed = ({ request, problems }: Verdict): boolean =>
  request === undefined && problems.length === 0

const random = customAlphabet('0123456789abcdefghijklmnopqrstuvwxyz', 10)

export const nameOf = ({ life, kind, at, when }: Point): string => `${life}:${kind}:${at}:${when}`

export function parsePoint(text: string): Point {
  const [life = '', kind, at, when] = text.split(':')
  const known = LIVES.some(({ name }) => name === life)
  if (!known || !KINDS.includes(kind as Kind) || !(Number(at) > 0) || !/^(before|after)$/.test(when ?? ''))
    throw new Error(
      `${text} is no point: use one like turn:redis:17:before; lives are ${lifeNames().join(', ')}.`,
    )
  return { life, kind, at: Number(at), when } as Point
}

export const lifeNames = (): string[] => LIVES.map(({ name }) => name)

/** What came of every point, and of the lives without a kill. */
export async function runCampaign(options: CampaignOptions): Promise<Outcome[]> {
  const { parent, lanes, only, every = 1, forMs = Infinity, lives = lifeNames(), kinds = KINDS } = options
  const began = performance.now()
  const outcomes: Outcome[] = []
  const keep = (outcome: Outcome) => {
    outcomes.push(outcome)
    options.onOutcome?.(outcome)
  }
  const victims = await Victims.prepare(parent, lanes)
  const grounds: Ground[] = []
  try {
    while (grounds.length < lanes) grounds.push(await Ground.prepare(options, `butler_crash_${random()}`))
    const play = async (ground: Ground, life: Life, point?: Point): Promise<Outcome> => {
      const stage = { life, ground, victims, parent, prefix: `crash-${random()}` }
      return {
        ...(await playPoint(stage, point)),
        name: point ? nameOf(point) : `${life.name} without a kill`,
        life: life.name,
        point,
      }
    }
    const points = [...(only ?? [])]
    if (!only) {
      const chosen = LIVES.filter(({ name }) => lives.includes(name))
      const found = new Map<Life, Point[]>()
      await share(grounds, chosen, async (ground, life) => {
        const outcome = heard(await play(ground, life))
        options.onLife?.(life, outcome.replies)
        found.set(life, pointsOf(life, outcome.replies, kinds))
        keep(outcome)
      })
      points.push(
        ...chosen.flatMap((life) => found.get(life) ?? []).filter((_, index) => index % every === 0),
      )
    }
    options.onPoints?.(points)
    await share(grounds, points, async (ground, point) => {
      if (performance.now() - began > forMs) return
      const life = LIVES.find(({ name }) => name === point.life)
      if (!life) return
      let outcome = await play(ground, life, point)
      // How many replies come differs a little from run to run.
      for (let more = TRIES - 1; more > 0 && isMissed(outcome); more--)
        outcome = await play(ground, life, point)
      keep(outcome)
    })
    return outcomes
  } finally {
    await Promise.all(grounds.map((ground) => ground.close()))
    await victims.close()
  }
}

/** A life without a reply of either store would pass because nobody can be killed in it. */
function heard(outcome: Outcome): Outcome {
  const silent = (['redis', 'mysql'] as const).filter((store) => outcome.replies[store] === 0)
  if (silent.length === 0 || outcome.problems.length > 0) return outcome
  return { ...outcome, problems: [`No reply of ${silent.join(' and ')} was counted.`] }
}

function pointsOf(life: Life, replies: Verdict['replies'], kinds: readonly Kind[]): Point[] {
  return kinds.flatMap((kind) =>
    (['before', 'after'] as const).flatMap((when) =>
      Array.from({ length: replies[kind] }, (_, index) => ({ life: life.name, kind, at: index + 1, when })),
    ),
  )
}

/** Each lane takes the next one as soon as it is free. */
async function share<T>(
  grounds: readonly Ground[],
  list: readonly T[],
  work: (ground: Ground, one: T) => Promise<void>,
): Promise<void> {
  const rest = list[Symbol.iterator]()
  await Promise.all(
    grounds.map(async (ground) => {
      for (let next = rest.next(); !next.done; next = rest.next()) await work(ground, next.value)
    }),
  )
}
