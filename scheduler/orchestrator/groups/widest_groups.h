// WidestGroups: how many tokens, prompt and output, one request of a model may have: what the
// widest formation holds that its decode instances can make, or could a while ago. Instances may
// be restarted, so a formation counts until it could not be made for as long as GroupControl counts
// instances that have left as absent (kept_us). Part of OrchestratorCore; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/group_control.h"
#include "scheduler/orchestrator/registry/registry.h"

namespace skein::scheduler::orchestrator {

class WidestGroups {
 public:
  struct Widest {
    int32_t size = 1;  // of the formation; 1: an instance alone
    int64_t tokens = 0;
  };

  // Both outlive it.
  WidestGroups(const Registry* registry, const GroupControl* groups)
      : registry_(registry), groups_(groups) {}

  // Of each change of the model's instances. True: since the last call one came or went. Only then,
  // or when one began or ended to drain, it walks over the model's groups; so does Of if that has
  // not been noted.
  bool Note(const std::string& model, TimeUs now);
  Widest Of(const std::string& model, TimeUs now) const;

 private:
  struct Former {
    Widest widest;
    TimeUs until_us = 0;  // when it could be made no more
  };
  struct Seen {
    uint64_t version = 0;        // of the model's pool
    uint64_t walked = 0;         // its DrainVersion
    Widest widest;               // at the last Note
    std::vector<Former> former;  // ever smaller ones
  };
  Widest Now(const std::string& model) const;

  const Registry* const registry_;
  const GroupControl* const groups_;
  std::map<std::string, Seen> seen_;  // by model
};

}  // namespace skein::scheduler::orchestrator
