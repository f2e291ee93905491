// A process that starts a Redis in the folder it is given, says where, and then only waits to be killed.
import { startRedis } from '../../src/cli/servers.ts'

const [folder = ''] = process.argv.slice(2)
const { pid, port } = await startRedis({ folder })
console.log(JSON.stringify({ pid, port }))
setInterval(() => {}, 60_000)
