// Registry: what each thread of this process keeps of the objects it uses (a reference to a Core, a lane and some
// records of an Engine), until the thread or the object ends.
//
//   a thread uses an object    it keeps a Keepsake, which it finds by the object's number
//   the object ends            the Keepsake is useless. It goes when its thread next keeps something
//   the thread ends            each Keepsake is told, the newest first. From then on the thread keeps nothing: ending()
//   the process forks          the child calls what was given to notice_forks()
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace hierlock::threads {

class Keepsake {
 public:
  explicit Keepsake(std::uint64_t object) : object_(object) {}
  virtual ~Keepsake() = default;
  Keepsake(const Keepsake&) = delete;
  Keepsake& operator=(const Keepsake&) = delete;

  std::uint64_t object() const noexcept { return object_; }
  // The object is gone, or may go.
  virtual bool useless() const noexcept = 0;
  // Called by the thread that keeps it, under mutex(). It is destroyed afterwards, not under the mutex.
  virtual void thread_ends() noexcept = 0;

 private:
  const std::uint64_t object_;
};

// For an object; never given twice, so that nobody takes a new object for an old one.
std::uint64_t next_number() noexcept;

// Guards which objects there are. Whoever forks holds it meanwhile, so that the child does not inherit it from a thread
// that the child does not have.
std::mutex& mutex() noexcept;

// Calls `in_child` in the child of every fork that libc knows of, under mutex(). Throws Error if there is no memory.
void notice_forks(void (*in_child)() noexcept);

// --- of the calling thread -------------------------------------------------------------------------------

// Its own variables are being destroyed. Locks among them may still be released.
bool ending() noexcept;

// nullptr if it keeps nothing of this object.
Keepsake* find(std::uint64_t object) noexcept;

// Requires that the thread is not ending.
void keep(std::unique_ptr<Keepsake> keepsake);

// Drops the Keepsakes that are useless.
void tidy() noexcept;

// Drops one, without telling it.
void drop(std::uint64_t object) noexcept;

}  // namespace hierlock::threads
