#include "peer_rocksdb.h"

#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/utilities/transaction.h>
#include <rocksdb/utilities/transaction_db.h>

#include <stdexcept>

namespace bench {

namespace {

constexpr std::size_t levels = 3;

void check(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error("RocksDB: " + status.ToString());
}

rocksdb::Status lock(rocksdb::Transaction& transaction, rocksdb::ColumnFamilyHandle* family, const std::string& key,
                     bool exclusive) {
  static const rocksdb::ReadOptions options;
  std::string* const no_value = nullptr;
  return transaction.GetForUpdate(options, family, key, no_value, exclusive, /*do_validate=*/false);
}

}  // namespace

struct RocksDb::Store {
  std::unique_ptr<rocksdb::Env> env{rocksdb::NewMemEnv(rocksdb::Env::Default())};
  std::unique_ptr<rocksdb::TransactionDB> db;
};

struct RocksDb::Worker::State {
  rocksdb::TransactionDB* db;
  rocksdb::ColumnFamilyHandle* family;
  std::unique_ptr<rocksdb::Transaction> transaction;
  std::vector<std::string> held;
};

RocksDb::RocksDb() : store_(std::make_unique<Store>()) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.env = store_->env.get();
  rocksdb::TransactionDBOptions locks;
  locks.num_stripes = 256;
  rocksdb::TransactionDB* db = nullptr;
  check(rocksdb::TransactionDB::Open(options, locks, "/bench", &db));
  store_->db.reset(db);
}

RocksDb::~RocksDb() = default;

RocksDb::Worker::Worker(RocksDb& store, const std::vector<Path>& keys)
    : state_(std::make_unique<State>()), keys_(keys) {
  state_->db = store.store_->db.get();
  state_->family = state_->db->DefaultColumnFamily();
  rocksdb::TransactionOptions options;
  options.lock_timeout = -1;  // for ever
  state_->transaction.reset(state_->db->BeginTransaction({}, options));
}

RocksDb::Worker::~Worker() = default;

void RocksDb::Worker::pair(std::size_t i) {
  State& state = *state_;
  const Path& path = keys_[i];
  for (std::size_t level = 0; level < levels; ++level) {
    check(lock(*state.transaction, state.family, path.nodes[level], level + 1 == levels));
  }
  for (std::size_t level = levels; level-- > 0;) {
    state.transaction->UndoGetForUpdate(state.family, path.nodes[level]);
  }
}

bool RocksDb::Worker::try_hold(const Path& path, std::size_t depth) {
  State& state = *state_;
  state.transaction->SetLockTimeout(0);
  for (std::size_t level = 0; level < depth; ++level) {
    const rocksdb::Status status = lock(*state.transaction, state.family, path.nodes[level], level + 1 == depth);
    if (status.IsTimedOut() || status.IsBusy()) {
      drop();
      return false;
    }
    check(status);
    state.held.push_back(path.nodes[level]);
  }
  state.transaction->SetLockTimeout(-1);
  return true;
}

void RocksDb::Worker::drop() {
  for (const std::string& key : state_->held) state_->transaction->UndoGetForUpdate(state_->family, key);
  state_->held.clear();
  state_->transaction->SetLockTimeout(-1);
}

}  // namespace bench
