#include "services/tls/tls_files.h"

#include <openssl/err.h>
#include <unistd.h>

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/file.h"
#include "services/tls/owned.h"

namespace skein::services::tls {
namespace {

absl::Status Wrong(const std::string& path, std::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(reason)));
}

// All certificates of a PEM text are readable, and there is one at least. Returns the first.
absl::StatusOr<Owned<X509>> FirstCertificate(const std::string& path, const std::string& pem) {
  const Owned<BIO> in = Reader(pem);
  Owned<X509> first = NextCertificate(in.get());
  if (first == nullptr) {
    return Wrong(path, absl::StrCat("contains no certificate in PEM: ", LastTlsError()));
  }
  while (NextCertificate(in.get()) != nullptr) {
  }
  const bool end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = LastTlsError();
  if (!end) return Wrong(path, absl::StrCat("a further certificate is malformed: ", reason));
  return first;
}

int64_t SecondsOf(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(timegm(&parts)) : 0;
}

std::string UtcText(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

SubjectNames NamesIn(const X509* certificate) {
  SubjectNames names;
  const Owned<GENERAL_NAMES> all(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; all != nullptr && i < sk_GENERAL_NAME_num(all.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all.get(), i);
    if (name->type != GEN_URI && name->type != GEN_DNS) continue;
    const ASN1_IA5STRING* text = name->d.ia5;
    std::string value(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      static_cast<size_t>(ASN1_STRING_length(text)));
    (name->type == GEN_URI ? names.uris : names.dns).push_back(std::move(value));
  }
  return names;
}

std::string SerialOf(const X509* certificate) {
  const Owned<BIGNUM> number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  char* digits = number == nullptr ? nullptr : BN_bn2hex(number.get());
  std::string text = digits == nullptr ? "" : digits;
  OPENSSL_free(digits);
  return text;
}

absl::Status CheckTimes(const std::string& path, const X509* certificate, int64_t now_s) {
  const int64_t begins_s = SecondsOf(X509_get0_notBefore(certificate));
  const int64_t ends_s = SecondsOf(X509_get0_notAfter(certificate));
  if (ends_s <= now_s) {
    return Wrong(path, absl::StrCat("the certificate has expired at ", UtcText(ends_s)));
  }
  if (begins_s > now_s) {
    return Wrong(path, absl::StrCat("the certificate is not valid before ", UtcText(begins_s)));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& folder, const std::string& pem, X509* certificate) {
  const std::string path = folder + "/tls.key";
  const Owned<EVP_PKEY> key = KeyIn(pem);
  if (key == nullptr) {
    return Wrong(path, absl::StrCat("contains no private key in PEM that is not encrypted: ",
                                    LastTlsError()));
  }
  if (X509_check_private_key(certificate, key.get()) != 1) {
    LastTlsError();
    return Wrong(path, absl::StrCat("is not the key of ", folder, "/tls.crt"));
  }
  return absl::OkStatus();
}

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

absl::Status Read(const std::string& path, std::string* text) {
  absl::StatusOr<std::string> read = ReadFile(path);
  if (!read.ok()) return absl::InvalidArgumentError(read.status().message());
  *text = *std::move(read);
  return absl::OkStatus();
}

absl::Status ReadIdentity(const std::string& folder, int64_t now_s, TlsFiles* files) {
  const std::string path = folder + "/tls.crt";
  if (absl::Status s = Read(path, &files->certificate); !s.ok()) return s;
  if (absl::Status s = Read(folder + "/tls.key", &files->key); !s.ok()) return s;
  const auto first = FirstCertificate(path, files->certificate);
  if (!first.ok()) return first.status();
  X509* certificate = first->get();
  if (absl::Status s = CheckTimes(path, certificate, now_s); !s.ok()) return s;
  if (absl::Status s = CheckKey(folder, files->key, certificate); !s.ok()) return s;
  const SubjectNames names = NamesIn(certificate);
  files->expires_s = SecondsOf(X509_get0_notAfter(certificate));
  files->serial = SerialOf(certificate);
  files->trust_domain = TrustDomainOf(names);
  files->roles = RolesOf(names, files->trust_domain);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& folder, Needs needs, int64_t now_s) {
  TlsFiles files;
  ERR_clear_error();
  const std::string ca = folder + "/ca.crt";
  if (absl::Status s = Read(ca, &files.ca); !s.ok()) return s;
  if (const auto first = FirstCertificate(ca, files.ca); !first.ok()) return first.status();
  const bool identity =
      needs == Needs::kIdentity || IsThere(folder + "/tls.crt") || IsThere(folder + "/tls.key");
  if (identity) {
    if (absl::Status s = ReadIdentity(folder, now_s, &files); !s.ok()) return s;
  }
  return files;
}

absl::StatusOr<SubjectNames> NamesIn(std::string_view pem) {
  const Owned<X509> first = NextCertificate(Reader(pem).get());
  if (first == nullptr) return absl::InvalidArgumentError(LastTlsError());
  return NamesIn(first.get());
}

bool IsForHost(std::string_view pem, const std::string& host) {
  const Owned<X509> first = NextCertificate(Reader(pem).get());
  if (first == nullptr) {
    LastTlsError();
    return false;
  }
  return X509_check_host(first.get(), host.data(), host.size(), 0, nullptr) == 1 ||
         X509_check_ip_asc(first.get(), host.c_str(), 0) == 1;
}

std::string LastTlsError() {
  const auto code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "malformed";
}

}  // namespace skein::services::tls
