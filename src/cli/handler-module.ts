/**
 * Loads the user's handlers from a file, for `work` and `dev`. TypeScript runs as Node itself can run it, else through
 * tsx when that is installed; tsx is never loaded for JavaScript.
 */
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { extname, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Handler } from '../index.ts'
import { UsageError } from './exits.ts'

export interface Handlers {
  readonly handler?: Handler | undefined
  readonly handlers?: Readonly<Record<string, Handler>> | undefined
}

/** `kinds`: take messages of these kinds only. Throws UsageError for whatever is wrong with the file. */
export async function loadHandlers(file: string, kinds: readonly string[] = []): Promise<Handlers> {
  const path = resolve(file)
  if (!existsSync(path)) throw new UsageError(`There is no handler file ${path}.`)
  if (/^\.[cm]?tsx?$/.test(extname(path))) await prepareTypeScript(path)
  let module: Record<string, unknown>
  try {
    module = (await import(pathToFileURL(path).href)) as Record<string, unknown>
  } catch (error) {
    const hint =
      error instanceof SyntaxError && path.endsWith('.js')
        ? ' If it is an ES module, name it .mjs or set "type": "module" in package.json.'
        : ''
    throw new UsageError(`The handler file ${path} does not load: ${reasonOf(error, path)}${hint}`)
  }
  return restrict(pick(module, path), kinds, path)
}

async function prepareTypeScript(path: string): Promise<void> {
  const { typescript } = process.features as { typescript?: string | false }
  if (typescript) return
  const tsx = findTsx(path)
  if (tsx === undefined) {
    throw new UsageError(
      `Node ${process.versions.node} cannot run TypeScript by itself: \`npm install --save-dev tsx\`, ` +
        'use Node 22.18 or newer, or give a .js file.',
    )
  }
  // The program's own entry, as in `node --import tsx`: it serves ES modules and CommonJS alike.
  await import(tsx)
}

/** The project's own tsx first: ours is a dependency only where somebody installed it beside us. */
function findTsx(path: string): string | undefined {
  for (const from of [path, import.meta.url]) {
    try {
      return pathToFileURL(createRequire(from).resolve('tsx')).href
    } catch {
      continue
    }
  }
  return undefined
}

function pick(loaded: Record<string, unknown>, path: string): Handlers {
  // A CommonJS module, such as TypeScript outside of a package of type "module", hides its exports in its default.
  const hidden = Object(loaded.default) as Record<string, unknown>
  const module = '__esModule' in hidden ? hidden : loaded
  const inDefault =
    typeof module.default === 'object' ? (module.default as Record<string, unknown> | null) : null
  const handler = module.handler ?? inDefault?.handler ?? (inDefault ? undefined : module.default)
  const handlers = module.handlers ?? inDefault?.handlers
  if (handler === undefined && handlers === undefined) {
    throw new UsageError(
      `${path} exports no handler: \`export default async (turn) => { … }\`, or an export named handler ` +
        'or handlers ({ kind: async (turn) => { … } }).',
    )
  }
  return { handler, handlers } as Handlers // the worker checks that they are functions
}

function restrict({ handler, handlers }: Handlers, kinds: readonly string[], path: string): Handlers {
  if (kinds.length === 0) return { handler, handlers }
  const chosen = kinds.map((kind) => {
    const one = handlers && Object.hasOwn(handlers, kind) ? handlers[kind] : handler
    if (!one) throw new UsageError(`${path} has no handler for messages of kind ${kind}.`)
    return [kind, one] as const
  })
  return { handlers: Object.fromEntries(chosen) }
}

/** The message and, when the stack tells, the place in the user's own file. */
function reasonOf(error: unknown, path: string): string {
  if (!(error instanceof Error)) return String(error)
  const place = error.stack?.split('\n').find((line) => line.includes(path) && !line.includes(error.message))
  return `${error.name}: ${error.message}${place ? ` (${place.trim()})` : ''}`
}
