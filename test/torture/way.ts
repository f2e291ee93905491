// The way that clients of the campaign take to the fleet: through the library straight to the stores, or through HTTP to
// servers that work too. All that differs between the two for the rig is here; for the clients, in speaker.ts.
import { openKeyring, type TunablesInput } from '../../src/index.ts'
import { PROBE_WORKER } from '../support/fleet.ts'
import { startProxy } from '../support/proxy.ts'
import type { Line } from './line-faults.ts'
import type { Address } from './speaker.ts'
import type { Post } from './stage.ts'

export type Through = 'library' | 'http'

export const WAYS: readonly Through[] = ['library', 'http']

export interface Way {
  /** What a worker's process runs. */
  readonly program: string
  /** How many connections such a process has at rest, with pools of that size. */
  readonly connections: (poolSize: number) => { redis: readonly number[]; mysqlMax: number }
  /** New lines for a client process. */
  openLines(posts: readonly Post[]): Promise<Line[]>
  /** Where a client finds the fleet at the other end of its lines. */
  addressOf(lines: readonly Line[]): Address
}

interface Place {
  readonly redisUrl: string
  readonly mysqlUrl: string
  readonly tunables: TunablesInput
}

const SERVING_WORKER = 'test/torture/serving-worker.ts'
/** What a fleet may run, whichever way it is. */
export const FLEET_PROGRAMS = [PROBE_WORKER, SERVING_WORKER]

export const wayThrough = (through: Through, place: Place): Promise<Way> =>
  through === 'http' ? throughHttp(place) : Promise.resolve(throughLibrary(place))

function throughLibrary({ redisUrl, mysqlUrl, tunables }: Place): Way {
  return {
    program: PROBE_WORKER,
    connections: (poolSize) => ({ redis: [2], mysqlMax: poolSize }),
    openLines: async () => [
      { store: 'redis', proxy: await startProxy(redisUrl), ofWorker: false },
      { store: 'mysql', proxy: await startProxy(mysqlUrl), ofWorker: false },
    ],
    addressOf: (lines) => {
      const urlOf = (store: Line['store']) => lines.find((line) => line.store === store)!.proxy.url
      return { redisUrl: urlOf('redis'), mysqlUrl: urlOf('mysql'), tunables }
    },
  }
}

/** More than a call of the library's takes until it gives up, so that its answer arrives. */
const REQUEST_MS = 1000
/** The keys have connections of their own. */
const KEYRING_SIZE = 4

async function throughHttp({ mysqlUrl, tunables }: Place): Promise<Way> {
  const keyring = openKeyring(mysqlUrl)
  const scopes = ['produce', 'watch', 'stop'] as const
  const { secret } = await keyring.create({ name: 'torture', scopes })
  await keyring.close()
  return {
    program: SERVING_WORKER,
    // Of its worker and its client, which listens once somebody has watched.
    connections: (poolSize) => ({ redis: [3, 4], mysqlMax: poolSize * 2 + KEYRING_SIZE }),
    openLines: (posts) =>
      Promise.all(
        posts.map(async (post): Promise<Line> => {
          return { store: 'http', proxy: await startProxy(post.member.url), ofWorker: false, post }
        }),
      ),
    addressOf: (lines) => ({
      urls: lines.map(({ proxy }) => proxy.url.replace(/\/$/, '')),
      key: secret,
      patienceMs: (tunables.enqueueTimeoutMs ?? 10_000) + REQUEST_MS,
    }),
  }
}
