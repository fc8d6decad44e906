// valkey:// and redis:// stores, a component of its own: link hierlock::valkey and enable it once, before the first
// open().
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
// valkey://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/DATABASE], on Valkey and on Redis 7 (redis:// is the same);
// several hosts are nodes of one cluster
//     ?table=NAME             a part of all keys (default locks)
//     ?lease=MS               a lock ends so long after its holder was last heard of (default 10000); one value for
//                             all processes that use a table
//     ?wait_replicas=N        so many replicas must confirm each grant and each renewal (default 0)
//     ?connections=N          for questions, at most so many at once (default 16); a lock that is held needs none
//     ?gate=off               a released lock always goes back to the server
//     ?publish_after=MS       what lasts so long is written down for status and deadlock detection (default 1000)
//     ?tls=off|on|verify ?ca=FILE    default: verify, except on loopback and sockets: off
//     ?socket=PATH            instead of a host
//     ?password_file=FILE ?password_env=NAME    so that it is in no process list; one of the two
// docs/valkey.md tells what such a lock is, what it costs, and what it cannot do.
#pragma once

namespace hierlock::valkey {

// Makes open() know valkey:// and redis://. May be called more than once.
void enable();

}  // namespace hierlock::valkey
