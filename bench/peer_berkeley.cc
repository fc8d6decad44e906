#include "peer_berkeley.h"

#include <stdexcept>

namespace bench {

namespace {

constexpr u_int32_t levels = 3;

void check(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string("Berkeley DB: ") + what + ": " + db_strerror(result));
}

DBT thing(const std::string& text) {
  DBT dbt{};
  dbt.data = const_cast<char*>(text.data());  // DBT has no const; lock calls only read it
  dbt.size = static_cast<u_int32_t>(text.size());
  return dbt;
}

}  // namespace

Berkeley::Berkeley(const Config& config) {
  check(db_env_create(&env_, 0), "db_env_create");
  const auto max = static_cast<u_int32_t>(config.max_nodes);
  check(env_->set_lk_max_locks(env_, max), "set_lk_max_locks");
  check(env_->set_lk_max_objects(env_, max), "set_lk_max_objects");
  check(env_->set_lk_max_lockers(env_, 1000), "set_lk_max_lockers");
  // Its own estimate is made for the initial, not the maximal number of objects: chains would get long.
  check(env_->set_lk_tablesize(env_, max), "set_lk_tablesize");
  if (config.partitions != 0) check(env_->set_lk_partitions(env_, config.partitions), "set_lk_partitions");
  if (config.spins != 0) check(env_->mutex_set_tas_spins(env_, config.spins), "mutex_set_tas_spins");
  const bool shared = !config.folder.empty();
  const u_int32_t flags = DB_CREATE | DB_INIT_LOCK | DB_THREAD | (shared ? 0 : DB_PRIVATE);
  check(env_->open(env_, shared ? config.folder.c_str() : nullptr, flags, 0600), "open");
}

Berkeley::~Berkeley() { env_->close(env_, 0); }

Berkeley::Worker::Worker(Berkeley& store, const std::vector<Path>& keys) : env_(store.env_), get_{}, put_{} {
  check(env_->lock_id(env_, &locker_), "lock_id");
  text_.reserve(keys.size() * levels);
  for (const Path& path : keys) {
    Nodes nodes;
    for (u_int32_t level = 0; level < levels; ++level) {
      nodes.node[level] = thing(text_.emplace_back(path.nodes[level]));
    }
    paths_.push_back(nodes);
  }
  for (u_int32_t level = 0; level < levels; ++level) {
    get_[level].op = DB_LOCK_GET;
    get_[level].mode = level + 1 < levels ? DB_LOCK_IWRITE : DB_LOCK_WRITE;
    put_[level].op = DB_LOCK_PUT;
  }
}

Berkeley::Worker::~Worker() {
  DB_LOCKREQ all{};
  all.op = DB_LOCK_PUT_ALL;
  env_->lock_vec(env_, locker_, 0, &all, 1, nullptr);
  env_->lock_id_free(env_, locker_);
}

void Berkeley::Worker::pair(std::size_t i) {
  Nodes& nodes = paths_[i];
  for (u_int32_t level = 0; level < levels; ++level) get_[level].obj = &nodes.node[level];
  check(env_->lock_vec(env_, locker_, 0, get_, levels, nullptr), "lock_vec, get");
  for (u_int32_t level = 0; level < levels; ++level) put_[level].lock = get_[levels - 1 - level].lock;
  check(env_->lock_vec(env_, locker_, 0, put_, levels, nullptr), "lock_vec, put");
}

void Berkeley::Worker::pair_of_node(std::size_t i) {
  DB_LOCK lock;
  check(env_->lock_get(env_, locker_, 0, &paths_[i].node[levels - 1], DB_LOCK_WRITE, &lock), "lock_get");
  check(env_->lock_put(env_, &lock), "lock_put");
}

bool Berkeley::Worker::try_hold(const Path& path, std::size_t depth) {
  for (std::size_t level = 0; level < depth; ++level) {
    DBT node = thing(path.nodes[level]);
    DB_LOCK lock;
    const db_lockmode_t mode = level + 1 < depth ? DB_LOCK_IWRITE : DB_LOCK_WRITE;
    const int result = env_->lock_get(env_, locker_, DB_LOCK_NOWAIT, &node, mode, &lock);
    if (result == DB_LOCK_NOTGRANTED) {
      drop();
      return false;
    }
    check(result, "lock_get");
  }
  return true;
}

void Berkeley::Worker::hold(const Path& path) {
  DBT nodes[levels];
  DB_LOCKREQ get[levels];
  for (u_int32_t level = 0; level < levels; ++level) {
    nodes[level] = thing(path.nodes[level]);
    get[level] = get_[level];
    get[level].obj = &nodes[level];
  }
  check(env_->lock_vec(env_, locker_, 0, get, levels, nullptr), "lock_vec, get");
}

void Berkeley::Worker::drop() {
  DB_LOCKREQ all{};
  all.op = DB_LOCK_PUT_ALL;
  check(env_->lock_vec(env_, locker_, 0, &all, 1, nullptr), "lock_vec, put all");
}

}  // namespace bench
