// A process that migrates the database its argument names; migrate.test.ts kills it in the middle.
import { connectMysql } from '../../src/mysql/connect.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'

const mysql = connectMysql(process.argv[2] ?? '', { timeoutMs: 5000 })
await migrateUp(mysql.db)
await mysql.close()
