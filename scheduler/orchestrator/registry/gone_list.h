// GoneList: the latest instances and routers that were here and are not any more, for operators.
// Bounded in number and in time. Part of OrchestratorCore.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

struct Gone {
  InstanceId instance;  // 0: a router
  Role role = Role::kPrefill;
  std::string model;
  std::string endpoint;
  TimeUs at_us = 0;
  std::string why;
  bool left = false;      // it said goodbye; otherwise it was lost
  bool replaced = false;  // another of its kind has come since: as many as have come, oldest first
};

class GoneList {
 public:
  GoneList(size_t max, TimeUs kept_us) : max_(max), kept_us_(kept_us) {}

  void Add(Gone gone);
  // An instance of that kind came, or a router did: the oldest lost one that is not replaced is.
  // False: there is none.
  bool InstanceCame(Role role, const std::string& model);
  void RouterCame();
  // The latest first; what is older than `kept_us` is not shown.
  std::vector<Gone> Latest(TimeUs now) const;

 private:
  template <class Matches>
  bool Replace(Matches matches);

  size_t max_;
  TimeUs kept_us_;
  std::deque<Gone> gone_;  // the latest last
};

}  // namespace skein::scheduler
