/** `butler serve`: the HTTP API and, unless told otherwise, a worker, in one process. */
import { type Command, Option } from 'commander'
import { wholeNumber } from './arguments.ts'
import type { ServeFlags } from './server.ts'
import { withStoreFlags } from './settings.ts'

export function addServe(program: Command): void {
  withStoreFlags(program.command('serve'))
    .description('answer HTTP requests, and run turns, until it is told to stop')
    .argument('[handler]', 'file (.js or .ts) with a default export, or an export named handler or handlers')
    .option('--host <address>', 'where to listen', '127.0.0.1')
    .addOption(
      new Option('--port <n>', '0: any that is free').env('BUTLER_PORT').default(7300).argParser(wholeNumber),
    )
    .option('--no-work', 'only answer; turns run in other processes')
    .option('--no-auth', 'let everybody do everything; on a loopback address only')
    .option('--cors-origin <origin...>', 'pages of these origins may call it')
    .option('--concurrency <n>', 'turns at the same time (default 100)', wholeNumber)
    .option('--kinds <kind...>', 'take only messages of these kinds')
    .option(
      '--grace <seconds>',
      'after a signal everything is over within it; turns have all of it but the last 5 s',
      wholeNumber,
      25,
    )
    // Loaded when it is asked for: no other command needs what it takes to serve.
    .action(async (file: string | undefined, given: ServeFlags) => {
      const { serve } = await import('./server.ts')
      await serve(file, given)
    })
}
