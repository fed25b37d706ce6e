#include "services/skeinctl/planning/probe_router.h"

#include <unistd.h>

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/process.h"
#include "services/base/version.h"

namespace skein::services {
namespace {

// Prompts use the first token ids, which every vocabulary has.
constexpr int32_t kFirstToken = 3, kLastToken = 255;

RouterShellOptions OptionsOf(const std::string& orchestrator) {
  RouterShellOptions options;
  options.orchestrators = {orchestrator};
  options.incarnation = RandomIncarnation();
  options.core.resume_wait_us = 0;  // a request that ran twice measures nothing
  return options;
}

std::string Greedy() {
  v1::SamplingParams sampling;
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  sampling.set_top_logprobs(-1);
  return sampling.SerializeAsString();
}

}  // namespace

ProbeRouter::ProbeRouter(const std::string& orchestrator) : shell_(OptionsOf(orchestrator)) {
  shell_.Start();
  RouterLink::Self self;
  self.identity.set_endpoint(absl::StrCat("skeinctl-profile:", getpid()));
  self.identity.set_pid(getpid());
  self.identity.set_version(kVersion);
  self.draining = [] { return true; };
  shell_.Join(std::move(self));
}

ProbeRouter::~ProbeRouter() {
  shell_.Leave();
  shell_.Stop();
}

scheduler::RequestId ProbeRouter::Send(const std::string& model, int64_t prompt_tokens,
                                       int64_t max_tokens, scheduler::PrefillShape shape,
                                       std::shared_ptr<RequestListener> listener) {
  scheduler::RequestSpec spec;
  spec.id = shell_.NextIds(1);
  spec.model = model;
  std::minstd_rand draw(static_cast<uint32_t>(spec.id.serial));
  for (int64_t i = 0; i < prompt_tokens; ++i) {
    spec.prompt.push_back(kFirstToken + static_cast<int32_t>(draw() % (kLastToken - kFirstToken)));
  }
  spec.max_tokens = max_tokens;
  spec.sampling = Greedy();
  shell_.loop().RunAndWait([&] { shell_.Submit(spec, "", std::move(listener), shape); });
  return spec.id;
}

void ProbeRouter::Cancel(scheduler::RequestId id) {
  shell_.loop().RunAndWait([&] { shell_.Cancel(id); });
}

}  // namespace skein::services
