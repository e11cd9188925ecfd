// SPDX-License-Identifier: Apache-2.0
#include "pool/wire/channel.h"

#include <grpcpp/create_channel.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>

#include "common/fd.h"

namespace bellows::pool {
namespace {

/// Every certificate of a pool is for this name: what counts is the key that signed it.
constexpr const char* kName = "bellows-pool";
constexpr long kLife = 3650L * 24 * 3600;
constexpr std::size_t kMostPem = 64 * 1024;
/// Elastic objects send no more, and nobody else does nearly as much. gRPC's own limit is 4 MiB.
constexpr int kLargestAnswer = 64 << 20;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* made) const {
    kFree(made);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Text = std::unique_ptr<BIO, Freed<BIO_free>>;

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : "";
}

bool add_extension(X509* certificate, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;
  const Extension extension(X509V3_EXT_nconf_nid(nullptr, &context, nid, value));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool name_it(X509* certificate) {
  X509_NAME* const name = X509_get_subject_name(certificate);
  const auto* const text = reinterpret_cast<const unsigned char*>(kName);
  std::uint64_t serial = 0;
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1 &&
         X509_set_issuer_name(certificate, name) == 1 &&
         RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1 &&
         ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1) == 1;
}

/// Its clock may be behind that of the machine which checks it.
bool date_it(X509* certificate) {
  return X509_gmtime_adj(X509_getm_notBefore(certificate), -24L * 3600) &&
         X509_gmtime_adj(X509_getm_notAfter(certificate), kLife);
}

bool sign(X509* certificate, EVP_PKEY* key) {
  return X509_set_version(certificate, X509_VERSION_3) == 1 && name_it(certificate) &&
         date_it(certificate) && X509_set_pubkey(certificate, key) == 1 &&
         add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE") &&
         add_extension(certificate, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
         add_extension(certificate, NID_ext_key_usage, "serverAuth,clientAuth") &&
         add_extension(certificate, NID_subject_alt_name,
                       "DNS:bellows-pool,DNS:localhost,IP:127.0.0.1") &&
         X509_sign(certificate, key, EVP_sha256()) > 0;
}

}  // namespace

Result<PoolKey> make_key() {
  const Error failed{ErrorKind::internal, "libcrypto can't make a key and a certificate"};
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  if (!key || !certificate || !sign(certificate.get(), key.get())) return failed;
  const Text key_text(BIO_new(BIO_s_mem()));
  const Text certificate_text(BIO_new(BIO_s_mem()));
  if (!key_text || !certificate_text ||
      PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
          1 ||
      PEM_write_bio_X509(certificate_text.get(), certificate.get()) != 1)
    return failed;
  return PoolKey{.key = text_of(key_text.get()), .certificate = text_of(certificate_text.get())};
}

Result<PoolKey> read_key(const std::string& dir) {
  auto key = read_file(dir + "/key.pem", kMostPem);
  if (!key) return key.error();
  auto certificate = read_file(dir + "/cert.pem", kMostPem);
  if (!certificate) return certificate.error();
  return PoolKey{.key = std::move(*key), .certificate = std::move(*certificate)};
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const PoolKey& key) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = key.certificate;
  options.pem_key_cert_pairs = {{key.key, key.certificate}};
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::Channel> open_channel(const std::string& address, const PoolKey& key) {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kName);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(kLargestAnswer);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  const grpc::SslCredentialsOptions options{.pem_root_certs = key.certificate,
                                            .pem_private_key = key.key,
                                            .pem_cert_chain = key.certificate};
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options), arguments);
}

}  // namespace bellows::pool
