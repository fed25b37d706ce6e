#include "services/tls/roles.h"

#include <array>

namespace skein::services::tls {
namespace {

constexpr std::array<std::string_view, kRoles> kNames = {"orchestrator", "router", "prefill-worker",
                                                         "decode-worker", "operator"};
constexpr std::string_view kScheme = "spiffe://";
constexpr std::string_view kFolder = "/skein/";
constexpr std::string_view kZone = ".skein.internal";

void AddNamed(std::string_view name, RoleSet* roles) {
  for (int i = 0; i < kRoles; ++i) {
    if (kNames[static_cast<size_t>(i)] == name) roles->Add(static_cast<Role>(i));
  }
}

// The part of a SPIFFE ID up to its path, and the path; false: it is none.
bool SplitSpiffe(std::string_view uri, std::string_view* domain, std::string_view* path) {
  if (uri.substr(0, kScheme.size()) != kScheme) return false;
  uri.remove_prefix(kScheme.size());
  const size_t slash = uri.find('/');
  if (slash == 0 || slash == std::string_view::npos) return false;
  *domain = uri.substr(0, slash);
  *path = uri.substr(slash);
  return true;
}

}  // namespace

std::string_view NameOf(Role role) { return kNames[static_cast<size_t>(role)]; }

std::string NamesOf(RoleSet roles) {
  std::string names;
  for (int i = 0; i < kRoles; ++i) {
    if (!roles.Has(static_cast<Role>(i))) continue;
    names += names.empty() ? "" : " or ";
    names += kNames[static_cast<size_t>(i)];
  }
  return names.empty() ? "no role" : names;
}

std::string TrustDomainOf(const SubjectNames& names) {
  std::string_view domain, path;
  for (const std::string& uri : names.uris) {
    if (SplitSpiffe(uri, &domain, &path)) return std::string(domain);
  }
  return "";
}

RoleSet RolesOf(const SubjectNames& names, std::string_view trust_domain) {
  RoleSet roles;
  std::string_view domain, path;
  for (const std::string& uri : names.uris) {
    if (!SplitSpiffe(uri, &domain, &path)) continue;
    if (!trust_domain.empty() && domain != trust_domain) continue;
    if (path.substr(0, kFolder.size()) == kFolder) AddNamed(path.substr(kFolder.size()), &roles);
  }
  for (const std::string_view name : names.dns) {
    if (name.size() > kZone.size() && name.substr(name.size() - kZone.size()) == kZone) {
      AddNamed(name.substr(0, name.size() - kZone.size()), &roles);
    }
  }
  return roles;
}

}  // namespace skein::services::tls
