#include "services/node/node_options.h"
#include "services/orchestrator/options.h"
#include "services/router/options.h"
#include "services/skeinctl/command.h"
#include "services/skeinctl/reference/reference.h"
#include "services/worker/process/worker_options.h"

namespace skein::services {
namespace {

template <typename Options>
CommandDescription Described(void (Options::*registers)(FlagSet*)) {
  Options options;
  FlagSet flags;
  (options.*registers)(&flags);
  return flags.Describe();
}

}  // namespace

Reference ProgramReference() {
  Reference reference;
  reference.services = {
      Described(&RouterOptions::Register), Described(&OrchestratorOptions::Register),
      Described(&WorkerOptions::RegisterPrefill), Described(&WorkerOptions::RegisterDecode),
      Described(&NodeOptions::Register)};
  for (const Command& command : Commands()) {
    command.describe([&](const FlagSet& flags) { reference.commands.push_back(flags.Describe()); });
  }
  return reference;
}

}  // namespace skein::services
