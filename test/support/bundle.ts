// Programs of the tests, each made into one file of JavaScript with all that it imports: such a process starts with a
// fifth of the work that it takes to load TypeScript, and a run starts hundreds.
import { existsSync } from 'node:fs'
import { cp } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** What programs read beside their code: kinds of modules and the version, the tables, and what `dev` starts. */
const BESIDE = ['package.json', 'migrations', 'docker-compose.yml']

/**
 * Bundles `programs`, given by their paths in the project, below `folder`. A program lies as deep there as in the
 * project, for the sake of what it reads beside its code; {@link bundled} says where.
 */
export async function bundle(folder: string, programs: readonly string[]): Promise<void> {
  const made = programs.map((program) =>
    build({
      root: ROOT,
      configFile: false,
      logLevel: 'error',
      ssr: { noExternal: true },
      build: {
        ssr: join(ROOT, program),
        outDir: dirname(bundled(folder, program)),
        emptyOutDir: false,
        minify: false,
        target: 'node20',
        rolldownOptions: { output: { codeSplitting: false, entryFileNames: '[name].js' } },
      },
    }),
  )
  const beside = BESIDE.map((name) => cp(join(ROOT, name), join(folder, name), { recursive: true }))
  await Promise.all([...made, ...beside])
  for (const program of programs)
    if (!existsSync(bundled(folder, program))) throw new Error(`${program} was not bundled.`)
}

export const bundled = (folder: string, program: string): string =>
  join(folder, program.replace(/\.ts$/, '.js'))
