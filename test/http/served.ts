// The API behind real ports of this process: several servers over the same stores, each with a client of its own.
import { createHttpHandler, type HttpOptions } from '../../src/http/index.ts'
import { type HttpServer, listen } from '../../src/http/server.ts'
import { type Api, openApi } from './api.ts'

export interface Front {
  readonly url: string
  readonly server: HttpServer
  readonly handler: ReturnType<typeof createHttpHandler>
}

export async function openServed(count: number, options: Partial<HttpOptions> = {}) {
  const api: Api = await openApi()
  const fronts: Front[] = []
  for (let index = 0; index < count; index++) {
    const client = api.world.newClient()
    const handler = createHttpHandler({ client, access: api.access, logger: false, ...options })
    const server = await listen(handler, { host: '127.0.0.1', port: 0 })
    fronts.push({ url: server.url, server, handler })
  }
  return {
    api,
    fronts,
    urls: fronts.map(({ url }) => url),
    key: api.keys.all,
    async close() {
      await Promise.all(fronts.map(({ server }) => server.close(1000)))
      await api.close()
    },
  }
}
