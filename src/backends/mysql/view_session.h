// ViewSession: the session on which a Locker's remote::Looker reads notices and views.
#pragma once

#include <memory>

#include "mysql/options.h"
#include "remote/looker.h"

namespace hierlock::mysql {

// `options` must outlive it.
std::unique_ptr<remote::LookSession> connect_to_look(const Options& options, timed::Deadline& limit);

}  // namespace hierlock::mysql
