// The store mysql://, a separate component. Link hierlock::mysql, and call enable() once before the first open().
//
//     #include <hierlock/hierlock.h>
//     #include <hierlock/mysql.h>
//
//     int main() {
//       hierlock::mysql::enable();
//       auto locker = hierlock::open("mysql://app@db/shop?password_env=DB_PASSWORD");
//       …
//     }
//
// mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE works on MySQL and on MariaDB. The store detects which one it is.
//     ?table=NAME             the table whose rows are locked (default hier_lock_buckets)
//     ?buckets=N ?levels=N    must match the settings that the table NAME_settings records; a new table has 10,000,000
//                             and 3 by default
//     ?provision=lazy         makes missing tables and rows when they are first needed; otherwise: not_provisioned
//     ?connections=N          at most N connections for paths (default 16): each held lock on a path needs one. The
//                             Locker opens up to 3 more, and at most 8 more for names and slots
//     ?gate=off               a released lock always goes back to the server, never directly to a local waiter
//     ?publish_after=MS       publishes locks and waits of this age for status and deadlock detection (default 1000)
//     ?views=off              snapshots and deadlock detection do not read the server's own views (default on)
//     ?tls=off|on|verify ?ca=FILE    default: verify; off on loopback and sockets
//     ?socket=PATH            instead of a host
//     ?password_file=FILE ?password_env=NAME    use one of the two to keep the password out of process lists
// docs/mysql.md explains how such a lock works, what it costs, and what it cannot do.
#pragma once

namespace hierlock::mysql {

// Makes open() accept mysql://. You may call it more than once.
void enable();

}  // namespace hierlock::mysql
