#include "engine/comm/warn_once.h"

#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace skein::engine {

Warn EachOnce(Warn warn) {
  if (warn == nullptr) return nullptr;
  struct Told {
    std::mutex mutex;
    std::set<std::string> texts;
  };
  return [warn = std::move(warn), told = std::make_shared<Told>()](const std::string& text) {
    {
      const std::lock_guard lock(told->mutex);
      if (!told->texts.insert(text).second) return;
    }
    warn(text);
  };
}

}  // namespace skein::engine
