// hierlock: exclusion control you can prove. Start here.
//
//     #include <hierlock/hierlock.h>
//
//     auto locker = hierlock::open("memory:");
//     auto lock = locker.acquire("u1/a1/r1");     // user u1, account a1, resource r1
//     ship(order, lock.fence());                  // released at the end of the scope
//
// The headers, in the order to read them:
//   locker.h        open a store, acquire, look at holders and waiters
//   lock.h          a held lock: fence, held, release, extend, give to another owner
//   target.h        what you can lock: paths, names, slots; shared or exclusive
//   options.h       timeouts, cancellation, owners, events
//   error.h         the one exception, and its kinds
//   snapshot.h      snapshot(), stats(), capabilities()
//   mutex.h         a target as a standard mutex
//   lock_manager.h  a name with a number of slots, with polling and backoff if the store needs it
//   mode.h          IS, IX, S, X
// Headers that hierlock.h does not include:
//   operate.h       for operators: provision(), doctor(), statements()
//   retry.h         run a transaction again if it fails with an error that another try may avoid
//   rows.h          the component for rows of your own tables; rows_soci.h: its adapter for SOCI
//   mysql.h         the component for MySQL and MariaDB: the URL and its options
//   valkey.h        the component for Valkey and Redis: the URL and its options
//   lab.h           the component that plays scenarios on databases and stores
//   spi/            for authors of a store
//
// Comments name requirements by their ids: (H1), (B3). Tests name them too, so `grep -rnw H1 tests src` shows the
// proof.
#pragma once

#include <hierlock/error.h>
#include <hierlock/lock.h>
#include <hierlock/lock_manager.h>
#include <hierlock/locker.h>
#include <hierlock/mode.h>
#include <hierlock/mutex.h>
#include <hierlock/options.h>
#include <hierlock/snapshot.h>
#include <hierlock/target.h>
#include <hierlock/version.h>
