// mysql:// stores, a component of its own: link hierlock::mysql and enable it once, before the first open().
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
// mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE, on MySQL and on MariaDB (recognised by itself)
//     ?table=NAME             the rows that are locked (default hier_lock_buckets); its settings are in NAME_settings
//     ?buckets=N ?levels=N    must be what the database has recorded (default 10,000,000 and 3 when it is made)
//     ?provision=lazy         missing tables and rows are made when they are first needed; otherwise not_provisioned
//     ?connections=N          at most so many at once (default 16): each lock that is held needs one
//     ?publish_after=MS       what lasts so long is written down for status and deadlock detection (default 1000)
//     ?views=off              snapshots do not ask the server's own views (default on)
//     ?tls=off|on|verify ?ca=FILE    default: verify, except on loopback and sockets: off
//     ?socket=PATH            instead of a host
//     ?password_file=FILE ?password_env=NAME    so that it is in no process list; one of the two
// docs/mysql.md tells what such a lock is, what it costs, and what it cannot do.
#pragma once

namespace hierlock::mysql {

// Makes open() know mysql://. May be called more than once.
void enable();

}  // namespace hierlock::mysql
