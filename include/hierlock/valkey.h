// The stores valkey:// and redis://, a separate component. Link hierlock::valkey, and call enable() once before the
// first open().
//
//     #include <hierlock/hierlock.h>
//     #include <hierlock/valkey.h>
//
//     int main() {
//       hierlock::valkey::enable();
//       auto locker = hierlock::open("valkey://app@cache.example?password_env=CACHE_PASSWORD");
//       …
//     }
//
// valkey://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/DATABASE] works on Valkey 8 and on Redis 7. redis:// is the
// same. Several hosts are nodes of one cluster.
//     ?table=NAME             a part of all keys (default locks)
//     ?lease=MS               a lock ends this long after its last renewal (default 10000). Use the same value in all
//                             processes of a table
//     ?wait_replicas=N        N replicas must confirm each grant and each renewal (default 0)
//     ?connections=N          at most N connections for requests (default 16); a held lock needs none
//     ?gate=off               a released lock always goes back to the server, never directly to a local waiter
//     ?publish_after=MS       publishes locks and waits of this age for status and deadlock detection (default 1000)
//     ?tls=off|on|verify ?ca=FILE    default: verify; off on loopback and sockets
//     ?socket=PATH            instead of a host
//     ?password_file=FILE ?password_env=NAME    use one of the two to keep the password out of process lists
// docs/valkey.md explains how such a lock works, what it costs, and what it cannot do.
#pragma once

namespace hierlock::valkey {

// Makes open() accept valkey:// and redis://. You may call it more than once.
void enable();

}  // namespace hierlock::valkey
