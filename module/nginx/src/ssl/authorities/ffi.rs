//! Functions of OpenSSL's that `openssl-sys` does not declare (openssl/x509_vfy.h, x509.h, asn1.h of 1.1.1 and later).

use libc::{c_int, c_long, c_uchar, c_void};
use openssl_sys::{
    ASN1_INTEGER, ASN1_STRING, EVP_PKEY, OPENSSL_STACK, X509, X509_ALGOR, X509_CRL, X509_NAME,
    X509_REVOKED, X509_STORE, X509_STORE_CTX, stack_st_X509,
};

pub const CRYPTO_EX_INDEX_X509_STORE: c_int = 4;

pub type GetIssuer = unsafe extern "C" fn(*mut *mut X509, *mut X509_STORE_CTX, *mut X509) -> c_int;
pub type CheckIssued = unsafe extern "C" fn(*mut X509_STORE_CTX, *mut X509, *mut X509) -> c_int;
/// That of lists gets a `const` context in C, which is passed alike.
pub type Lookup = unsafe extern "C" fn(*mut X509_STORE_CTX, *const X509_NAME) -> *mut OPENSSL_STACK;
pub type Cleanup = unsafe extern "C" fn(*mut X509_STORE_CTX) -> c_int;
pub type OfList = unsafe extern "C" fn(*mut X509_CRL) -> c_int;
pub type LookUpSerial = unsafe extern "C" fn(
    *mut X509_CRL,
    *mut *mut X509_REVOKED,
    *const ASN1_INTEGER,
    *const X509_NAME,
) -> c_int;
pub type VerifyList = unsafe extern "C" fn(*mut X509_CRL, *mut EVP_PKEY) -> c_int;

/// `X509_CRL_METHOD`
#[repr(C)]
pub struct Method {
    _opaque: [u8; 0],
}

/// `ASN1_ITEM`
#[repr(C)]
pub struct Item {
    _opaque: [u8; 0],
}

/// `ASN1_TYPE`
#[repr(C)]
pub struct AnyType {
    _opaque: [u8; 0],
}

pub type VerifyCallback = unsafe extern "C" fn(c_int, *mut X509_STORE_CTX) -> c_int;

unsafe extern "C" {
    pub fn X509_STORE_CTX_set_verify_cb(context: *mut X509_STORE_CTX, with: Option<VerifyCallback>);
    pub fn X509_STORE_CTX_get0_cert(context: *const X509_STORE_CTX) -> *mut X509;
    pub fn X509_STORE_CTX_get0_untrusted(context: *const X509_STORE_CTX) -> *mut stack_st_X509;
    pub fn X509_STORE_set_ex_data(store: *mut X509_STORE, place: c_int, data: *mut c_void)
    -> c_int;
    pub fn X509_STORE_get_ex_data(store: *const X509_STORE, place: c_int) -> *mut c_void;
    pub fn X509_STORE_set_get_issuer(store: *mut X509_STORE, with: Option<GetIssuer>);
    pub fn X509_STORE_set_lookup_certs(store: *mut X509_STORE, with: Option<Lookup>);
    pub fn X509_STORE_set_lookup_crls(store: *mut X509_STORE, with: Option<Lookup>);
    pub fn X509_STORE_set_cleanup(store: *mut X509_STORE, with: Option<Cleanup>);
    pub fn X509_STORE_CTX_get0_store(context: *const X509_STORE_CTX) -> *mut X509_STORE;
    pub fn X509_STORE_CTX_get_check_issued(context: *const X509_STORE_CTX) -> Option<CheckIssued>;
    pub fn X509_CRL_METHOD_new(
        init: Option<OfList>,
        free: Option<OfList>,
        lookup: Option<LookUpSerial>,
        verify: Option<VerifyList>,
    ) -> *mut Method;
    pub fn X509_CRL_set_default_method(method: *const Method);
    pub fn X509_CRL_set_meth_data(list: *mut X509_CRL, data: *mut c_void);
    pub fn X509_CRL_get_meth_data(list: *mut X509_CRL) -> *mut c_void;
    pub fn X509_CRL_get0_signature(
        list: *const X509_CRL,
        signature: *mut *const ASN1_STRING,
        algorithm: *mut *const X509_ALGOR,
    );
    pub fn X509_CRL_get_signature_nid(list: *const X509_CRL) -> c_int;
    pub fn i2d_ASN1_INTEGER(number: *const ASN1_INTEGER, out: *mut *mut c_uchar) -> c_int;
    pub fn ASN1_ANY_it() -> *const Item;
    pub fn ASN1_TYPE_new() -> *mut AnyType;
    pub fn ASN1_TYPE_free(value: *mut AnyType);
    pub fn ASN1_TYPE_set(value: *mut AnyType, tag: c_int, content: *mut c_void);
    pub fn ASN1_item_verify(
        item: *const Item,
        algorithm: *const X509_ALGOR,
        signature: *const ASN1_STRING,
        signed: *mut c_void,
        key: *mut EVP_PKEY,
    ) -> c_int;
    pub fn d2i_X509_REVOKED(
        to: *mut *mut X509_REVOKED,
        der: *mut *const c_uchar,
        length: c_long,
    ) -> *mut X509_REVOKED;
    pub fn X509_REVOKED_free(entry: *mut X509_REVOKED);
}
