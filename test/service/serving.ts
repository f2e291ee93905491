// `butler serve` as processes, over servers of their own: started, told to leave, replaced, killed.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ensureDatabase, type Server, startMysql, startRedis } from '../../src/cli/servers.ts'
import { migrate, openKeyring } from '../../src/index.ts'
import { bundle, bundled } from '../support/bundle.ts'
import { until } from '../support/eventually.ts'

const MAIN = 'src/cli/main.ts'
const HANDLER = 'test/service/handler.ts'

export interface Served {
  readonly url: string
  readonly child: ChildProcess
  readonly log: () => string
  /** Resolves with how the process ended. */
  readonly ended: Promise<number | string>
}

export class Serving {
  readonly mysql: Server
  readonly redis: Server
  readonly mysqlUrl: string
  /** Good for everything. */
  readonly key: string
  readonly #folder: string
  readonly #all = new Set<Served>()

  private constructor(parts: {
    mysql: Server
    redis: Server
    mysqlUrl: string
    key: string
    folder: string
  }) {
    this.mysql = parts.mysql
    this.redis = parts.redis
    this.mysqlUrl = parts.mysqlUrl
    this.key = parts.key
    this.#folder = parts.folder
  }

  static async begin(): Promise<Serving> {
    const folder = await mkdtemp(join(tmpdir(), 'butler-service-'))
    await bundle(folder, [MAIN, HANDLER])
    const [mysql, redis] = await Promise.all([startMysql({ folder }), startRedis({ folder })])
    const mysqlUrl = new URL('/butler_service', mysql.url).href
    await ensureDatabase(mysqlUrl)
    await migrate(mysqlUrl)
    const keyring = openKeyring(mysqlUrl)
    const { secret } = await keyring.create({ name: 'all', scopes: ['produce', 'watch', 'stop', 'admin'] })
    await keyring.close()
    return new Serving({ mysql, redis, mysqlUrl, key: secret, folder })
  }

  /** Resolves when it answers. `port` 0: any. */
  async start(port = 0, flags: readonly string[] = []): Promise<Served> {
    const file = bundled(this.#folder, HANDLER)
    const args = [bundled(this.#folder, MAIN), 'serve', file, '--port', `${port}`, '--grace', '1', ...flags]
    const child = spawn(process.execPath, args, {
      env: {
        PATH: process.env['PATH'],
        BUTLER_REDIS_URL: this.redis.url,
        BUTLER_MYSQL_URL: this.mysqlUrl,
        BUTLER_PREFIX: 'service',
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let log = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => (log += text))
    const ended = once(child, 'exit').then(([code, signal]) => (code ?? signal) as number | string)
    const urlIn = () => /"event":"http\.listening","url":"([^"]+)"/.exec(log)?.[1]
    const url = await until(
      () => {
        if (child.exitCode !== null) throw new Error(`butler serve ended: ${log}`)
        return urlIn()
      },
      { ms: 60_000, what: 'butler serve to listen' },
    )
    const served: Served = { url, child, log: () => log, ended }
    this.#all.add(served)
    void ended.then(() => this.#all.delete(served))
    return served
  }

  /** SIGTERM, and its successor at the same port. Resolves with how long the old one took, and how it ended. */
  async replace(
    old: Served,
    flags: readonly string[] = [],
  ): Promise<{ served: Served; ms: number; end: number | string }> {
    const began = performance.now()
    old.child.kill('SIGTERM')
    const end = await old.ended
    const ms = Math.round(performance.now() - began)
    return { served: await this.start(Number(new URL(old.url).port), flags), ms, end }
  }

  async close(): Promise<void> {
    for (const { child } of this.#all) child.kill('SIGKILL')
    await Promise.all([...this.#all].map(({ ended }) => ended))
    await Promise.all([this.mysql.stop(), this.redis.stop()])
    await rm(this.#folder, { recursive: true, force: true })
  }
}
