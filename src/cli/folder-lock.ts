/**
 * A file that says which process uses a folder. One left behind by a process that was killed is recognised: its process
 * is gone, or its pid is another process's now.
 */
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { EXIT, ExitError } from './exits.ts'

/** Takes the folder for this process; returns what gives it back. Throws ExitError when a process that lives has it. */
export function lockFolder(folder: string): () => void {
  mkdirSync(folder, { recursive: true })
  const file = join(folder, 'dev.pid')
  const mine = `${process.pid} ${bornAt(process.pid)}\n`
  const aside = `${file}.${process.pid}`
  writeFileSync(aside, mine)
  try {
    // A link exists with its content or not at all, so nobody ever reads half a pid.
    if (!link(aside, file)) {
      const found = read(file)
      const owner = livingOwner(found)
      if (owner !== undefined) throw taken(folder, owner)
      takeOut(file, found, `${aside}.old`)
      if (!link(aside, file)) throw taken(folder, read(file).split(' ')[0] ?? '')
    }
  } finally {
    rmSync(aside, { force: true })
  }
  return () => {
    if (read(file) === mine) rmSync(file, { force: true })
  }
}

/** Removes the file that was found, by a step that only one can win; a rival that took the folder since then keeps it. */
function takeOut(file: string, found: string, aside: string): void {
  try {
    renameSync(file, aside)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw error
  }
  if (read(aside) !== found) link(aside, file)
  rmSync(aside, { force: true })
}

function taken(folder: string, pid: string): ExitError {
  return new ExitError(
    EXIT.refused,
    `butler dev already runs here: process ${pid} uses ${folder}. Work with that one, end it with Ctrl-C, or give ` +
      'this one another folder with --data.',
  )
}

function link(from: string, to: string): boolean {
  try {
    linkSync(from, to)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, 'latin1')
  } catch {
    return ''
  }
}

function livingOwner(text: string): string | undefined {
  const [, pid, born] = /^([1-9][0-9]*) ([0-9]*)\n$/.exec(text) ?? []
  return pid !== undefined && isAlive(Number(pid)) && bornAt(Number(pid)) === born ? pid : undefined
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    // Somebody else's process, but a process.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** What tells a process from a later one with its pid; empty where the system does not say. */
function bornAt(pid: number): string {
  const stat = read(`/proc/${pid}/stat`)
  // The program's name, in brackets, may hold anything; the start time is the 20th field after it.
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? ''
}
