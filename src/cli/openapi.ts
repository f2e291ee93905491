/** `butler openapi`: what the HTTP API is, for generators of clients; the same that a server gives at /v1/openapi.json. */
import type { Command } from 'commander'
import { print } from './output.ts'

export function addOpenapi(program: Command): void {
  program
    .command('openapi')
    .description('print the OpenAPI document of the HTTP API')
    .action(async () => {
      const { apiDocument } = await import('../http/index.ts')
      print(JSON.stringify(apiDocument(), null, 2))
    })
}
