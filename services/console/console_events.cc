#include "services/console/console_events.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;
using Events = std::vector<ConsoleEvent>;

std::string Text(const Json& object, const char* name) { return object.value(name, ""); }

std::string Named(const Json& instance) {
  return absl::StrCat(Text(instance, "role"), " instance ", Text(instance, "id"));
}

// " (why)", or nothing.
std::string Because(const std::string& why) { return why.empty() ? "" : " (" + why + ")"; }

std::string Joined(const Json& list) {
  std::string text;
  for (const Json& one : list) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", one.get<std::string>());
  }
  return text;
}

// Calls `come(key, now)`, `go(key, was)` and `stay(key, was, now)` for each thing of a collection.
template <typename Come, typename Go, typename Stay>
void Compare(const Json& before, const Json& after, const char* collection, Come come, Go go,
             Stay stay) {
  const Json none = Json::object();
  const Json& was = before.contains(collection) ? before[collection] : none;
  const Json& now = after.contains(collection) ? after[collection] : none;
  for (const auto& [key, value] : was.items()) {
    if (!now.contains(key)) go(key, value);
  }
  for (const auto& [key, value] : now.items()) {
    const auto old = was.find(key);
    if (old == was.end()) {
      come(key, value);
    } else if (*old != value) {
      stay(key, *old, value);
    }
  }
}

const auto kIgnoreOne = [](const std::string&, const Json&) {};

std::string LevelOf(const std::string& state) {
  if (state == "serving") return "good";
  return state == "draining" || state == "drained" || state == "starting" ? "info" : "warning";
}

// Of the orchestrator that leads the cell of `one`; 0: it was not heard yet.
uint64_t GenerationOf(const Json& view, const Json& one) {
  const std::string cell = absl::StrCat(one.value("cell", uint64_t{0}));
  const Json cells = view.value("cells", Json::object());
  return cells.value(cell, Json::object()).value("generation", uint64_t{0});
}

// Whether another orchestrator leads the cell of `was`. Whom it does not name has not gone: it has
// not heard of all yet.
bool HasNewLeader(const Json& before, const Json& after, const Json& was) {
  return GenerationOf(before, was) != GenerationOf(after, was);
}

// Whether the orchestrator of `now` was heard before. Else `now` need not be new.
bool WasHeard(const Json& before, const Json& now) { return GenerationOf(before, now) != 0; }

void AddInstances(const Json& before, const Json& after, Events* events) {
  Compare(
      before, after, "instances",
      [&](const std::string& key, const Json& now) {
        if (!WasHeard(before, now)) return;
        events->push_back(
            {"joined", "good", absl::StrCat(Named(now), " joined from ", Text(now, "node")), key});
      },
      [&](const std::string& key, const Json& was) {
        if (HasNewLeader(before, after, was)) return;
        const Json gone = after.value("gone", Json::object());
        const std::string who = absl::StrCat(was.value("cell", 0), ":instance ", Text(was, "id"));
        const Json how = gone.value(who, Json::object());
        const bool left = how.value("left", false);
        const std::string why = Text(how, "why");
        // The orchestrator's reason says so already: "was lost: its lease expired".
        const bool told = why.rfind("was lost", 0) == 0 || why.rfind("left", 0) == 0;
        events->push_back(
            {left ? "left" : "lost", left ? "info" : "bad",
             told ? absl::StrCat(Named(was), " ", why)
                  : absl::StrCat(Named(was), left ? " left" : " was lost", Because(why)),
             key});
      },
      [&](const std::string& key, const Json& was, const Json& now) {
        const std::string state = Text(now, "state");
        if (state == Text(was, "state")) return;
        events->push_back({"state", LevelOf(state),
                           absl::StrCat(Named(now), " is ", state, ", was ", Text(was, "state")),
                           key});
      });
}

void AddRouters(const Json& before, const Json& after, Events* events) {
  Compare(
      before, after, "routers",
      [&](const std::string& key, const Json& now) {
        if (!WasHeard(before, now)) return;
        events->push_back(
            {"joined", "good", absl::StrCat("router ", Text(now, "endpoint"), " joined"), key});
      },
      [&](const std::string& key, const Json& was) {
        if (HasNewLeader(before, after, was)) return;
        events->push_back(
            {"left", "warning", absl::StrCat("router ", Text(was, "endpoint"), " is gone"), key});
      },
      [&](const std::string& key, const Json& was, const Json& now) {
        const std::string state = Text(now, "state");
        if (state == Text(was, "state")) return;
        events->push_back({"state", LevelOf(state),
                           absl::StrCat("router ", Text(now, "endpoint"), " is ", state), key});
      });
  Compare(
      before, after, "refused",
      [&](const std::string& key, const Json& now) {
        events->push_back({"state", "bad",
                           absl::StrCat("a ", Text(now, "what"), " at ", Text(now, "endpoint"),
                                        " was refused", Because(Text(now, "why"))),
                           key});
      },
      kIgnoreOne, [](const std::string&, const Json&, const Json&) {});
}

// The formation in which `member` is; null if it is in none.
Json FormationOf(const Json& group, const Json& member) {
  for (const Json& one : group.value("formations", Json::array())) {
    for (const Json& other : one["members"]) {
      if (other == member) return one;
    }
  }
  return {};
}

bool IsAlone(const Json& formation) { return Text(formation, "name") == "independent"; }

// Those of `members` that were not in this formation, or not as it is now.
Json NewIn(const Json& formation, const Json& was) {
  Json found = Json::array();
  for (const Json& member : formation["members"]) {
    const Json old = FormationOf(was, member);
    if (old.is_null()) continue;  // it has just joined
    const bool same = Text(old, "name") == Text(formation, "name") &&
                      Text(old, "stage") == Text(formation, "stage") &&
                      (IsAlone(formation) || old["members"] == formation["members"]);
    if (!same) found.push_back(member);
  }
  return found;
}

void AddSwitch(const std::string& key, const Json& was, const Json& now, Events* events) {
  for (const Json& one : now.value("formations", Json::array())) {
    const Json moved = NewIn(one, was);
    if (moved.empty()) continue;
    const std::string stage = Text(one, "stage"), name = Text(one, "name");
    // The independent ones of a group are one formation, however many they are.
    const Json& members = IsAlone(one) ? moved : one["members"];
    const bool single = members.size() == 1;
    const bool stands = stage == "stands";
    std::string text = absl::StrCat(single ? "instance " : "instances ", Joined(members));
    absl::StrAppend(&text, stands ? (single ? " is " : " are ") : ": " + stage + " to ", name,
                    Because(Text(one, "why")));
    events->push_back({"switch", stands ? "good" : "info", std::move(text), key});
  }
}

void AddGroups(const Json& before, const Json& after, Events* events) {
  Compare(before, after, "groups", kIgnoreOne, kIgnoreOne,
          [&](const std::string& key, const Json& was, const Json& now) {
            AddSwitch(key, was, now, events);
          });
}

// What is told of a request when it has happened once more; nullptr: nothing.
const char* WordsOf(const std::string& reason) {
  if (reason == "resumed") return "was resumed elsewhere, because its instances were lost";
  if (reason == "replanned") return "got a new plan";
  if (reason == "preempted") return "was preempted, to be computed anew";
  if (reason == "moved") return "moved here from another cell";
  if (reason == "submitted_anew") return "was submitted again after its orchestrator was lost";
  if (reason == "parked") return "waits for room at a prefill instance, or for its tenant's turn";
  return nullptr;
}

void AddRequest(const std::string& key, const Json& was, const Json& now, Events* events) {
  const Json counts = now.value("degraded", Json::object());
  const Json counted = was.value("degraded", Json::object());
  for (const auto& [reason, times] : counts.items()) {
    const char* words = WordsOf(reason);
    if (words == nullptr || times.get<uint64_t>() <= counted.value(reason, uint64_t{0})) continue;
    events->push_back(
        {"request", "warning", absl::StrCat("request ", Text(now, "name"), " ", words), key});
  }
}

void AddRequests(const Json& before, const Json& after, Events* events) {
  Compare(
      before, after, "requests",
      // A resumed request may be new to its orchestrator.
      [&](const std::string& key, const Json& now) {
        AddRequest(key, Json::object(), now, events);
      },
      kIgnoreOne,
      [&](const std::string& key, const Json& was, const Json& now) {
        AddRequest(key, was, now, events);
      });
}

void AddJobs(const Json& before, const Json& after, Events* events) {
  Compare(
      before, after, "jobs",
      [&](const std::string& key, const Json& now) {
        events->push_back(
            {"job", "info", absl::StrCat("job ", key, " is ", Text(now, "state")), key});
      },
      kIgnoreOne,
      [&](const std::string& key, const Json& was, const Json& now) {
        const std::string state = Text(now, "state");
        if (state == Text(was, "state")) return;
        const bool bad = state == "failed" || state == "expired";
        events->push_back({"job", bad ? "bad" : "info",
                           absl::StrCat("job ", key, " is ", state, ", ", now.value("completed", 0),
                                        " of ", now.value("lines", 0), " lines done"),
                           key});
      });
}

void AddCells(const Json& before, const Json& after, Events* events) {
  Compare(before, after, "cells", kIgnoreOne, kIgnoreOne,
          [&](const std::string& key, const Json& was, const Json& now) {
            const bool reached = now.value("reached", false);
            if (reached != was.value("reached", false)) {
              events->push_back(
                  {"leader", reached ? "good" : "bad",
                   reached ? absl::StrCat("the orchestrator of ", Text(now, "name"), " answers")
                           : absl::StrCat("the orchestrator of ", Text(now, "name"),
                                          " does not answer", Because(Text(now, "problem"))),
                   key});
            }
            const auto generation = now.value("generation", uint64_t{0});
            const auto earlier = was.value("generation", uint64_t{0});
            if (generation != earlier && earlier != 0 && generation != 0) {
              events->push_back({"leader", "warning",
                                 absl::StrCat("another orchestrator leads ", Text(now, "name"),
                                              ", generation ", generation),
                                 key});
            }
          });
}

}  // namespace

std::vector<ConsoleEvent> EventsBetween(const Json& before, const Json& after) {
  Events events;
  AddCells(before, after, &events);
  AddRouters(before, after, &events);
  AddInstances(before, after, &events);
  AddGroups(before, after, &events);
  AddRequests(before, after, &events);
  AddJobs(before, after, &events);
  return events;
}

void ConsoleEvents::Add(std::vector<ConsoleEvent> events, int64_t now_ms) {
  if (events.size() > kAtOnce) {
    const size_t more = events.size() - kAtOnce + 1;
    events.resize(kAtOnce - 1);
    events.push_back({"state", "warning", absl::StrCat("and ", more, " more events at once"), ""});
  }
  for (ConsoleEvent& event : events) {
    kept_[next_++] = {{"at_ms", now_ms},
                      {"kind", std::move(event.kind)},
                      {"level", std::move(event.level)},
                      {"text", std::move(event.text)},
                      {"about", std::move(event.about)}};
  }
  while (kept_.size() > kKept) kept_.erase(kept_.begin());
}

Json ConsoleEvents::View() const {
  Json view = Json::object();
  for (const auto& [number, event] : kept_) view[absl::StrCat(number)] = event;
  return view;
}

}  // namespace skein::services
