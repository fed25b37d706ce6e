#include "tests/sim/store_process.h"

namespace skein::sim {

using scheduler::kNever;

void StoreProcess::OnStart() {
  looks_at_us_ = kNever;
  Change([this] { register_.BeginLeasesAnew(network_->time().now()); });
}

StoreNews StoreProcess::News() const {
  const scheduler::ElectionView view = register_.view();
  return {view, view.leader_revision != 0 ? leader_ : ""};
}

void StoreProcess::Change(const std::function<void()>& action) {
  const int64_t revision = register_.view().revision;
  action();
  if (register_.view().revision != revision) {
    for (const auto& [watcher, tell] : watchers_) Tell(watcher, tell);
  }
  const TimeUs next = register_.NextExpiry();
  if (next == kNever || next == looks_at_us_) return;
  looks_at_us_ = next;
  After(next - network_->time().now(), [this, next] {
    if (looks_at_us_ != next) return;
    looks_at_us_ = kNever;
    Change([this] { register_.Expire(network_->time().now()); });
  });
}

void StoreProcess::Tell(Process* watcher, const std::function<void(const StoreNews&)>& tell) {
  if (network_->IsCut(endpoint(), watcher->endpoint())) return;
  if (network_->Happens(network_->scenario().loss_chance)) return;
  network_->time().At(network_->time().now() + network_->Delay(),
                      [watcher, tell, news = News(), generation = watcher->generation()] {
                        if (!watcher->alive() || watcher->generation() != generation) return;
                        watcher->WhenAwake([tell, news] { tell(news); });
                      });
}

}  // namespace skein::sim
