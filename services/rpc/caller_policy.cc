#include "services/rpc/caller_policy.h"

#include <map>

namespace skein::services {
namespace {

using enum tls::Role;

const std::map<std::string_view, tls::RoleSet>& Methods() {
  static const tls::RoleSet workers{kPrefillWorker, kDecodeWorker};
  static const tls::RoleSet members{kPrefillWorker, kDecodeWorker, kRouter, kOperator};
  static const tls::RoleSet uploads{kRouter, kOperator};
  // A router asks and orders for its console, which has its own check of operators.
  static const tls::RoleSet console{kRouter, kOperator};
  static const auto* const methods = new std::map<std::string_view, tls::RoleSet>{
      {"/skein.v1.Orchestrator/ConnectRouter", {kRouter}},
      {"/skein.v1.Orchestrator/ConnectWorker", workers},
      {"/skein.v1.Orchestrator/Status", console},
      // Each process looks who leads by it.
      {"/skein.v1.Orchestrator/ListModels", members},
      {"/skein.v1.Orchestrator/Explain", console},
      {"/skein.v1.Orchestrator/ListRequests", console},
      // A worker or router tells of an order that its own admin port has got.
      {"/skein.v1.Orchestrator/Drain", members},
      {"/skein.v1.Orchestrator/ListGroups", console},
      {"/skein.v1.Orchestrator/ChangeFormation", console},
      {"/skein.v1.Jobs/CreateFile", uploads},
      {"/skein.v1.Jobs/GetFile", uploads},
      {"/skein.v1.Jobs/ListFiles", uploads},
      {"/skein.v1.Jobs/DeleteFile", uploads},
      {"/skein.v1.Jobs/ReadFile", uploads},
      {"/skein.v1.Jobs/CreateJob", uploads},
      {"/skein.v1.Jobs/GetJob", uploads},
      {"/skein.v1.Jobs/ListJobs", uploads},
      {"/skein.v1.Jobs/CancelJob", uploads},
      {"/skein.v1.Jobs/ComputeLines", {kRouter}},
      {"/skein.v1.DecodeWorker/OpenTransfer", {kPrefillWorker}},
      {"/skein.v1.DecodeWorker/Renew", {kPrefillWorker}},
      {"/skein.v1.DecodeWorker/AcquireStagingBuffer", {kPrefillWorker}},
      {"/skein.v1.DecodeWorker/TakePart", {kPrefillWorker}},
      {"/skein.v1.DecodeWorker/ReleaseStagingBuffer", {kPrefillWorker}},
      {"/skein.v1.DecodeWorker/Commit", {kPrefillWorker}},
      {"/skein.v1.DecodeWorker/Abort", {kPrefillWorker}},
      {"/skein.v1.DecodeWorker/StreamTokens", {kRouter}},
      {"/skein.v1.PrefillWorker/StepTimes", {kOperator}},
  };
  return *methods;
}

}  // namespace

tls::RoleSet MayCall(std::string_view method) {
  if (method.starts_with("/grpc.health.v1.Health/")) return tls::RoleSet::All();
  if (method.starts_with("/grpc.reflection.")) return {kOperator};
  const auto it = Methods().find(method);
  return it != Methods().end() ? it->second : tls::RoleSet{};
}

}  // namespace skein::services
