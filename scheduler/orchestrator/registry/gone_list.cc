#include "scheduler/orchestrator/registry/gone_list.h"

#include <utility>

namespace skein::scheduler {

void GoneList::Add(Gone gone) {
  if (gone_.size() >= max_) gone_.pop_front();
  gone_.push_back(std::move(gone));
}

template <class Matches>
bool GoneList::Replace(Matches matches) {
  for (Gone& gone : gone_) {
    if (gone.left || gone.replaced || !matches(gone)) continue;
    gone.replaced = true;
    return true;
  }
  return false;
}

bool GoneList::InstanceCame(Role role, const std::string& model) {
  return Replace([&](const Gone& gone) {
    return gone.instance != InstanceId{} && gone.role == role && gone.model == model;
  });
}

void GoneList::RouterCame() {
  Replace([](const Gone& gone) { return gone.instance == InstanceId{}; });
}

std::vector<Gone> GoneList::Latest(TimeUs now) const {
  std::vector<Gone> latest;
  for (auto it = gone_.rbegin(); it != gone_.rend(); ++it) {
    if (now - it->at_us > kept_us_) break;
    latest.push_back(*it);
  }
  return latest;
}

}  // namespace skein::scheduler
