// What happened between two looks at a cluster, in words: who joined or was lost, drains, switches
// of formations, requests that were resumed, jobs. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace skein::services {

struct ConsoleEvent {
  std::string kind;   // "joined", "lost", "left", "state", "switch", "request", "job", "leader"
  std::string level;  // "info", "good", "warning", "bad"
  std::string text;
  std::string about;  // the key of what it concerns, in the view's member of that kind; or ""
};

// `before` and `after` are views (console_view.h). In the order in which a reader wants them: what
// was lost before what came of it.
std::vector<ConsoleEvent> EventsBetween(const nlohmann::json& before, const nlohmann::json& after);

// The latest events, numbered. Bounded.
class ConsoleEvents {
 public:
  static constexpr size_t kKept = 200;
  static constexpr size_t kAtOnce = 50;  // of one look; the last of them then counts the others

  void Add(std::vector<ConsoleEvent> events, int64_t now_ms);
  // By number, as a member of the view.
  nlohmann::json View() const;

 private:
  uint64_t next_ = 1;
  std::map<uint64_t, nlohmann::json> kept_;
};

}  // namespace skein::services
