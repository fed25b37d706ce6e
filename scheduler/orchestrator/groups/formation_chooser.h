// Chooser: one call of ChooseFormation (formation_policy.h). The needs of long and urgent requests
// are in formation_chooser_needs.cc, of offline jobs in formation_chooser_offline.cc, the rest in
// formation_policy.cc. Nothing else includes this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/orchestrator/groups/formation_policy.h"

namespace skein::scheduler::orchestrator {

// What load makes of the members that nothing else has a use for.
enum class Rule {
  kBind,
  kRelease,
  kKeep,  // what load has bound
  kHold,  // whatever is bound
};

class Chooser {
 public:
  Chooser(const FormationPolicyConfig& config, const GroupLoad& load, TimeUs now)
      : config_(config), load_(load), now_(now), members_(load.members.size()) {}

  FormationChoice Choose() {
    TakePins();
    best_ = BestSize(static_cast<int32_t>(members_), /*explain=*/true);
    DecideRule();
    KeepLong();
    TakeForLength();
    TakeForPriority();
    TakeForOffline();
    TakeByLoad();
    Conclude();
    return std::move(choice_);
  }

 private:
  void TakePins();
  const FormationSize* BestSize(int32_t limit, bool explain);
  void DecideRule();
  void DecideRuleByLoad(int32_t other);
  void Apply(Rule rule, std::string why, int32_t instead, std::string why_not);
  void KeepLong();
  void TakeForLength();
  void TakeForPriority();
  void KeepForPriority();
  void TakeForOffline();
  std::string WhyNotShared(bool is_shared) const;
  bool IsOfflineOver() const;  // no line waits or runs
  void ShareFree(const std::string& why);
  void Share(const Subset& subset, const std::string& why);
  void TakeByLoad();
  void Conclude();

  double Sequences() const;
  double WaitingTokens() const;
  bool FewPromptsWait() const;
  bool IsFree(const Subset& subset) const;
  bool IsBoundNow(const Subset& subset) const;
  int64_t TokensIn(const Subset& subset) const;
  std::vector<Subset> FreeSubsets(int32_t size) const;
  bool Serves(const Subset& subset) const;
  std::optional<Subset> Emptiest(int32_t size, int64_t tokens = 0) const;
  std::optional<Subset> ForLength(int32_t size, int64_t tokens) const;
  std::optional<FormationSize> SmallestThatHolds(int64_t tokens);
  int64_t TokensMax(const Subset& subset) const;
  int64_t MostThatPinsLeave(int32_t size) const;
  void RejectBlocked(int32_t size);
  bool IsWithin(const Subset& subset) const;
  bool HasPinned(int32_t size) const;
  bool Stays(const GroupLoad::Present& present) const;
  void Bind(const Subset& subset, BindReason reason, std::string why);
  void Reject(int32_t size, std::string why);

  const FormationPolicyConfig& config_;
  const GroupLoad& load_;
  const TimeUs now_;
  const size_t members_;
  std::vector<Subset> taken_;  // pins, longs_ and choice_.bound
  size_t pins_ = 0;            // so many of them, the first
  std::vector<Subset> longs_;  // what runs long requests
  const FormationSize* best_ = nullptr;
  Rule rule_ = Rule::kRelease;
  std::string rule_why_;
  FormationChoice choice_;
};

}  // namespace skein::scheduler::orchestrator
