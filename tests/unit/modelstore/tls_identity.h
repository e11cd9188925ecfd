// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <string>

#include "tests/unit/modelstore/hostile_server.h"

namespace bellows::model_test {

/// A key and a certificate for 127.0.0.1 that vouches for itself, of one hour.
class TlsIdentity {
 public:
  TlsIdentity() : context_(SSL_CTX_new(TLS_server_method())) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    cr_assert(key && certificate && context_);
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_EXTENSION* names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(certificate, names, -1);
    cr_assert(X509_sign(certificate, key, EVP_sha256()) > 0);
    SSL_CTX_use_certificate(context_.get(), certificate);
    SSL_CTX_use_PrivateKey(context_.get(), key);
    X509_EXTENSION_free(names);
    certificate_ = certificate;
    EVP_PKEY_free(key);
  }
  TlsIdentity(const TlsIdentity&) = delete;
  TlsIdentity& operator=(const TlsIdentity&) = delete;
  ~TlsIdentity() { X509_free(certificate_); }

  SSL_CTX* context() const { return context_.get(); }
  void write_certificate(const std::string& path) const {
    std::FILE* file = std::fopen(path.c_str(), "w");
    cr_assert(file && PEM_write_X509(file, certificate_) == 1);
    std::fclose(file);
  }

 private:
  std::unique_ptr<SSL_CTX, FreeTls> context_;
  X509* certificate_ = nullptr;
};

}  // namespace bellows::model_test
